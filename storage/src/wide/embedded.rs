//! The store on one machine's disk.

use std::path::PathBuf;

/// How the embedded store uses the machine.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    /// The data directory; made if missing, held by one process at a time.
    pub dir: PathBuf,
    /// Cache of blocks read, bytes.
    pub cache_bytes: u64,
    /// Bound of what is held in memory before it goes to segment files, bytes, for all tables together.
    pub memtable_bytes: u64,
}
