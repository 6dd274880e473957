//! The data directory: made for its owner alone, and opened; or why not, and what to do.

use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use posthouse_storage::wide::StoreError;
use posthouse_storage::{Storage, StorageConfig};

/// Makes the data directory for its owner alone; one that exists keeps its mode.
pub fn make_private(path: &Path) -> anyhow::Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| anyhow!("cannot make the data directory {}: {error}; {}", path.display(), advice(&error)))
}

/// Opens the store in it.
pub async fn open(config: StorageConfig) -> anyhow::Result<Arc<Storage>> {
    let path = config.data_dir.clone();
    Storage::open(config).await.map_err(|error| match error {
        StoreError::Io(error) => {
            anyhow!("cannot use the data directory {}: {error}; {}", path.display(), advice(&error))
        }
        error => anyhow::Error::from(error),
    })
}

/// What to do when the system says no.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "give the directory to the user that Posthouse runs as, or name another one (`server.data_dir`, --data)"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some space, or name another one (`server.data_dir`, --data)"
        }
        _ => "name another one (`server.data_dir`, --data)",
    }
}
