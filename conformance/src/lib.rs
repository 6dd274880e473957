//! What the black-box tests and the benchmark share: a server started from the built binary, and small blocking SMTP
//! and IMAP clients that do exactly what they are told (and nothing clever), so that a fault seen is the server's.
//!
//! Nothing here links the server's crates: what is tested is the program as a user gets it.

pub mod corpus;
pub mod imap;
pub mod peers;
pub mod server;
pub mod smtp;

/// Asserts that a program exists on the PATH; tests that need one are `#[ignore]`d and run where it is installed.
///
/// # Panics
/// When it is missing, naming the package to install.
pub fn require(program: &str, package: &str) {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .chain([std::path::PathBuf::from("/usr/sbin")])
            .any(|dir| dir.join(program).is_file())
    });
    assert!(found, "{program} is not installed (Debian package {package})");
}
