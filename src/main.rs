//! The Posthouse binary.
fn main() {}
