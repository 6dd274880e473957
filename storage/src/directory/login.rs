//! Passwords and logins.
//!
//! A password is checked once with argon2id, on the blocking pool and at most as many at once as there are cores; then
//! it is remembered for some minutes by a keyed hash. The key is made anew by each process and the stored hash goes into
//! it, so a changed password or a disabled account ends at once, and what is remembered is worth nothing elsewhere.
//! A name nobody has costs the same work as a wrong password.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use tokio::sync::Semaphore;

use super::row::Named;
use super::throttle::{Throttle, peer_key};
use super::{Address, AuthError, DirectoryConfig, DirectoryError, Inner, Login, Result};
use crate::account::AccountId;
use crate::wide::StoreError;

/// Octets in a password.
const PASSWORD_MAX: usize = 1_024;
/// Octets in a name that is worth looking at.
const LOGIN_MAX: usize = 512;
/// How long a checked password is remembered.
const REMEMBER: Duration = Duration::from_secs(5 * 60);
/// How many are remembered.
const REMEMBERED: usize = 20_000;

/// Everything logins share.
pub(super) struct Logins {
    key: [u8; 32],
    params: Params,
    /// A hash that no password has.
    nobody: String,
    cores: Arc<Semaphore>,
    checked: Mutex<HashMap<[u8; 32], Instant>>,
    throttle: Mutex<Throttle>,
}

impl Logins {
    pub(super) fn new(config: &DirectoryConfig) -> Self {
        let params = Params::new(config.password_memory_kib, config.password_passes, 1, None);
        // Out of argon2's bounds: its own default, rather than a directory that cannot be opened.
        let params = params.unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            key: rand::random(),
            nobody: unknowable(&params),
            params,
            cores: Arc::new(Semaphore::new(cores)),
            checked: Mutex::default(),
            throttle: Mutex::default(),
        }
    }

    /// A keyed hash over parts, each with its length.
    fn digest(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// Stands for a stored hash in logins.
    fn mark(&self, stored: &str) -> u64 {
        let digest = self.digest(&[b"mark", stored.as_bytes()]);
        digest[..8].iter().fold(0, |mark, octet| mark << 8 | u64::from(*octet))
    }

    fn remembers(&self, digest: &[u8; 32], now: Instant) -> bool {
        self.checked().get(digest).is_some_and(|until| *until > now)
    }

    fn remember(&self, digest: [u8; 32], now: Instant) {
        let mut checked = self.checked();
        if checked.len() >= REMEMBERED {
            checked.retain(|_, until| *until > now);
            if checked.len() >= REMEMBERED {
                checked.clear();
            }
        }
        checked.insert(digest, now + REMEMBER);
    }

    fn checked(&self) -> MutexGuard<'_, HashMap<[u8; 32], Instant>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn throttle(&self) -> MutexGuard<'_, Throttle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A well-formed hash with random output.
fn unknowable(params: &Params) -> String {
    let b64 = |octets: &[u8]| base64::Engine::encode(&base64::engine::general_purpose::STANDARD_NO_PAD, octets);
    format!(
        "$argon2id$v=19$m={},t={},p={}${}${}",
        params.m_cost(),
        params.t_cost(),
        params.p_cost(),
        b64(&rand::random::<[u8; 16]>()),
        b64(&rand::random::<[u8; 32]>())
    )
}

impl Inner {
    /// The PHC string of a new password.
    pub(super) async fn hash(&self, password: Option<&str>) -> Result<Option<String>> {
        let Some(password) = password else { return Ok(None) };
        if password.is_empty() {
            return Err(DirectoryError::BadPassword("it is empty"));
        }
        if password.len() > PASSWORD_MAX {
            return Err(DirectoryError::BadPassword("it is longer than 1,024 octets"));
        }
        if password.contains(['\0', '\r', '\n']) {
            // RFC 4616 §2: PLAIN cannot carry NUL; line ends come from a mistake when it was read.
            return Err(DirectoryError::BadPassword("it holds a NUL or a line end"));
        }
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, self.logins.params.clone());
        let password = password.to_owned();
        let salt: [u8; 16] = rand::random();
        let hash = self
            .blocking(move || argon.hash_password_with_salt(password.as_bytes(), &salt).map(|hash| hash.to_string()))
            .await?;
        Ok(Some(hash.map_err(|_| DirectoryError::BadPassword("it could not be hashed"))?))
    }

    pub(super) async fn authenticate(&self, login: &str, password: &str, peer: IpAddr) -> Result<Login, AuthError> {
        let logins = &self.logins;
        if login.len() > LOGIN_MAX || password.len() > PASSWORD_MAX {
            return Err(AuthError::Invalid);
        }
        let address = Address::parse(login).ok();
        let name =
            address.as_ref().map_or(login.to_lowercase(), |address| format!("{}@{}", address.key, address.domain));
        let peer = peer_key(peer);
        let by_peer = logins.digest(&[b"peer", &peer]);
        let by_pair = logins.digest(&[b"pair", &peer, name.as_bytes()]);
        let by_name = logins.digest(&[b"name", name.as_bytes()]);

        let mut row = None;
        if let Some(address) = &address
            && let Some(Named::Account(found)) = self.named(&address.domain, &address.key).await?
        {
            row = Some((found, &address.domain));
        }
        let usable = row.as_ref().is_some_and(|(row, _)| row.enabled && row.password.is_some());
        let stored = row.as_ref().and_then(|(row, _)| row.password.as_deref()).unwrap_or(&logins.nobody);
        let digest = logins.digest(&[b"checked", name.as_bytes(), password.as_bytes(), stored.as_bytes()]);
        let mark = logins.mark(stored);
        let welcome = |row: Option<(super::row::AccountRow, &String)>| match row {
            Some((row, domain)) => {
                Ok(Login { account: AccountId(row.id), address: format!("{}@{domain}", row.local), mark })
            }
            None => Err(AuthError::Invalid),
        };
        if usable && logins.remembers(&digest, Instant::now()) {
            return welcome(row);
        }

        let attempt = Attempt::begin(logins, by_peer, by_pair, by_name)?;
        let delay = attempt.delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let Ok(core) = Arc::clone(&logins.cores).acquire_owned().await else { return Err(AuthError::Invalid) };
        // While we waited, another connection may have checked the same password, or failed too often.
        if usable && logins.remembers(&digest, Instant::now()) {
            return welcome(row);
        }
        logins.throttle().check(&by_peer, &by_pair, Instant::now())?;
        let (stored, given) = (stored.to_owned(), password.to_owned());
        let right = tokio::task::spawn_blocking(move || {
            let right = verify(&given, &stored);
            drop(core);
            right
        })
        .await
        .map_err(|error| DirectoryError::Store(StoreError::Unavailable(error.to_string())))?;
        let now = Instant::now();
        if right && usable {
            logins.remember(digest, now);
            logins.throttle().succeeded(&by_peer, &by_pair, now);
            return welcome(row);
        }
        logins.throttle().failed(&by_peer, &by_pair, &by_name, now);
        Err(AuthError::Invalid)
    }

    pub(super) async fn still_valid(&self, login: &Login) -> Result<bool> {
        let generation = match self.answers().granted(&login.address, Instant::now()) {
            Ok(known) => return Ok(known == Some((login.account, login.mark))),
            Err(generation) => generation,
        };
        let address = Address::parse(&login.address)?;
        let granted = match self.named(&address.domain, &address.key).await? {
            Some(Named::Account(row)) if row.enabled => {
                row.password.map(|stored| (AccountId(row.id), self.logins.mark(&stored)))
            }
            _ => None,
        };
        self.answers().remember_granted(generation, &login.address, granted, Instant::now());
        Ok(granted == Some((login.account, login.mark)))
    }

    #[cfg(test)]
    pub(super) fn logins_cores(&self) -> &Semaphore {
        &self.logins.cores
    }

    /// Runs argon2 when a core is free for it.
    async fn blocking<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let stopped = |why: String| DirectoryError::Store(StoreError::Unavailable(why));
        let core = Arc::clone(&self.logins.cores).acquire_owned().await.map_err(|error| stopped(error.to_string()))?;
        tokio::task::spawn_blocking(move || {
            let done = run();
            drop(core);
            done
        })
        .await
        .map_err(|error| stopped(error.to_string()))
    }
}

/// Only argon2id is ever stored.
fn verify(password: &str, stored: &str) -> bool {
    let Ok(hash) = PasswordHash::new(stored) else { return false };
    hash.algorithm.as_str() == "argon2id" && Argon2::default().verify_password(password.as_bytes(), &hash).is_ok()
}

/// One attempt counted as in flight until it is dropped.
struct Attempt<'a> {
    logins: &'a Logins,
    by_peer: [u8; 32],
    delay: Duration,
}

impl<'a> Attempt<'a> {
    fn begin(logins: &'a Logins, by_peer: [u8; 32], by_pair: [u8; 32], by_name: [u8; 32]) -> Result<Self, AuthError> {
        let delay = logins.throttle().begin(&by_peer, &by_pair, &by_name, Instant::now())?;
        Ok(Self { logins, by_peer, delay })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.logins.throttle().end(&self.by_peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_costs_what_a_password_costs_and_has_none() {
        let logins = Logins::new(&DirectoryConfig { password_memory_kib: 64, password_passes: 3 });
        let hash = PasswordHash::new(&logins.nobody).unwrap();
        let params = Params::try_from(&hash).unwrap();
        assert_eq!((params.m_cost(), params.t_cost(), params.p_cost()), (64, 3, 1));
        assert!(hash.salt.is_some() && hash.hash.is_some(), "else verifying would not hash at all");
        assert!(!verify("", &logins.nobody));
        assert!(!verify("secret", "$argon2i$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA"));
        assert!(!verify("secret", "secret"));
    }

    #[test]
    fn a_checked_password_is_remembered_for_a_while_and_memory_is_bounded() {
        let logins = Logins::new(&DirectoryConfig::cheap());
        let now = Instant::now();
        let digest = logins.digest(&[b"a", b"b"]);
        assert!(!logins.remembers(&digest, now));
        logins.remember(digest, now);
        assert!(logins.remembers(&digest, now + REMEMBER - Duration::from_millis(1)));
        assert!(!logins.remembers(&digest, now + REMEMBER));
        for number in 0..REMEMBERED as u64 * 2 {
            logins.remember(logins.digest(&[&number.to_be_bytes()]), now);
        }
        assert!(logins.checked().len() <= REMEMBERED);
        // Parts do not run into each other, and another process has another key.
        assert_ne!(logins.digest(&[b"ab", b"c"]), logins.digest(&[b"a", b"bc"]));
        assert_ne!(Logins::new(&DirectoryConfig::cheap()).digest(&[b"a", b"b"]), digest);
    }
}
