//! One suite of promises that every backend keeps.
