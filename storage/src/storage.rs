//! Everything put together: what the binary opens once and hands to the protocol crates.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::account::{Accounts, AccountsConfig};
use crate::delivery::Delivery;
use crate::directory::{Directory, DirectoryConfig};
use crate::message::SpoolConfig;
use crate::wide::{Embedded, EmbeddedConfig, Store, StoreError};

/// For how long closing writes checkpoints.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(5);

/// Where storage lives and how much of the machine it may use.
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// The data directory; made if missing, held by one process at a time.
    pub data_dir: PathBuf,
    /// The engine's cache of blocks read, bytes.
    pub cache_bytes: u64,
    /// What the engine holds in memory before it goes to files, bytes, for all tables together.
    pub memtable_bytes: u64,
    /// Memory for accounts' state (mailboxes, flags), bytes.
    pub account_memory_bytes: usize,
    /// Quota of a new account, bytes; 0 = none.
    pub default_quota_bytes: u64,
    /// How long an expunged message's octets stay readable for sessions that still show it.
    pub expunge_grace: Duration,
    /// How much of a message being received stays in memory before it goes to a file, bytes.
    pub spool_memory_bytes_max: usize,
    /// Password hashes and failed logins.
    pub directory: DirectoryConfig,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("data"),
            cache_bytes: 64 << 20,
            memtable_bytes: 64 << 20,
            account_memory_bytes: 128 << 20,
            default_quota_bytes: 0,
            expunge_grace: Duration::from_secs(3600),
            spool_memory_bytes_max: 128 << 10,
            directory: DirectoryConfig::default(),
        }
    }
}

/// The opened storage.
pub struct Storage {
    /// The engine.
    pub store: Arc<dyn Store>,
    /// Accounts.
    pub accounts: Accounts,
    /// Delivery to accounts.
    pub delivery: Delivery,
    /// Who exists.
    pub directory: Directory,
    /// Where messages being received are kept.
    pub spool: SpoolConfig,
}

impl Storage {
    /// Opens the embedded store in the data directory (`store` below it) and empties the spool a crash left.
    ///
    /// # Errors
    ///
    /// `Locked` when another process holds the directory; `Corrupt` and `Refused` as the store says.
    pub async fn open(config: StorageConfig) -> Result<Arc<Self>, StoreError> {
        let engine = EmbeddedConfig {
            dir: config.data_dir.join("store"),
            cache_bytes: config.cache_bytes,
            memtable_bytes: config.memtable_bytes,
        };
        let spool = config.data_dir.join("spool");
        let opened = tokio::task::spawn_blocking(move || {
            let store = Embedded::open(&engine)?;
            // Only after the lock is held: these are nobody's files now.
            match std::fs::remove_dir_all(&spool) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => std::fs::create_dir_all(&spool)?,
            }
            Ok::<_, StoreError>(store)
        });
        let store = opened.await.map_err(|error| StoreError::Unavailable(error.to_string()))??;
        Ok(Self::with_store(Arc::new(store), config))
    }

    /// The same on a store given (the memory store in tests); `data_dir` holds the spool only.
    pub fn with_store(store: Arc<dyn Store>, config: StorageConfig) -> Arc<Self> {
        let accounts = Accounts::new(
            store.clone(),
            AccountsConfig {
                memory_bytes: config.account_memory_bytes,
                default_quota_bytes: config.default_quota_bytes,
                grace: config.expunge_grace,
                shared: false,
            },
        );
        let directory = Directory::new(store.clone(), config.directory);
        let delivery = Delivery::new(accounts.clone());
        let spool = SpoolConfig { dir: config.data_dir.join("spool"), memory_bytes_max: config.spool_memory_bytes_max };
        Arc::new(Self { store, accounts, delivery, directory, spool })
    }

    /// Stops the engine once everything that was begun is durable. Accounts leave checkpoints first, so that they open
    /// fast again.
    ///
    /// # Errors
    ///
    /// What made the store fail, if it did.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.accounts.settle(SETTLE_TIME_MAX).await;
        self.store.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{AccountError, AccountId};
    use crate::message::NewMessage;

    #[tokio::test]
    async fn what_was_delivered_is_there_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let config = StorageConfig { data_dir: dir.path().to_owned(), ..StorageConfig::default() };
        let storage = Storage::open(config.clone()).await.unwrap();
        assert!(matches!(Storage::open(config.clone()).await, Err(StoreError::Locked { .. })));
        std::fs::write(storage.spool.dir.join("left"), b"by a crash").unwrap();
        let octets = [b"Subject: s\r\n\r\n".as_slice(), &[b'x'; 300_000]].concat();
        let message = Arc::new(NewMessage::from_octets(octets.clone()));
        let to = [AccountId(1), AccountId(2)];
        let appended = storage.delivery.deliver(message, &to).await.remove(1).unwrap();
        storage.close().await.unwrap();
        let account = storage.accounts.open(AccountId(9)).await;
        assert!(matches!(account.err(), Some(AccountError::Store(StoreError::Unavailable(_)))));
        drop(storage);

        let storage = Storage::open(config).await.unwrap();
        storage.delivery.sweep().await.unwrap();
        storage.accounts.sweep().await.unwrap();
        assert_eq!(std::fs::read_dir(&storage.spool.dir).unwrap().count(), 0);
        let account = storage.accounts.open(to[1]).await.unwrap();
        assert_eq!(account.current().by_name("INBOX").unwrap().counts.messages, 1);
        let row = account.row(appended.email).await.unwrap();
        let mut found = Vec::new();
        while (found.len() as u64) < row.size {
            found.extend(account.octets(appended.email, &row, found.len() as u64..row.size).await.unwrap());
        }
        assert!(found == octets);
        storage.close().await.unwrap();
    }
}
