//! Where the admin socket is, and how to reach it however long the data directory's path is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The socket's name inside the data directory.
pub const NAME: &str = "admin.sock";

/// Longest path that `sun_path` holds on every system, without its final NUL.
const PATH_BYTES_MAX: usize = 103;

/// A path to the admin socket of `data_dir` that fits into a socket address, valid while it is held.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    _directory: Option<File>,
}

impl SocketPath {
    /// The path itself; when that is too long, one through this process's descriptor of the directory (Linux).
    pub fn new(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(NAME);
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path, _directory: None });
        }
        let directory = File::open(data_dir)?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        if !short.exists() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} is too long for a socket: use a shorter data directory", path.display()),
            ));
        }
        Ok(Self { path: short.join(NAME), _directory: Some(directory) })
    }

    /// The path to bind or connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
