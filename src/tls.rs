//! The certificate that every role shows: read from files and read again on request, or made up for a trial.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, anyhow};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The configuration that listeners share, and the way to change its certificate while they run.
#[derive(Debug, Clone)]
pub struct Tls {
    /// For the roles.
    pub config: Arc<ServerConfig>,
    shown: Arc<Shown>,
    files: Option<(PathBuf, PathBuf)>,
}

/// The certificate of the moment; one lock taken for an instant per handshake.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Tls {
    /// From PEM files.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn from_files(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let shown = read(certificate, key)?;
        Self::new(shown, Some((certificate.to_owned(), key.to_owned())))
    }

    /// With a certificate made on the spot that nobody vouches for.
    pub fn self_signed(names: &[&str]) -> anyhow::Result<Self> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).context("cannot make a certificate")?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        Self::new(certified(vec![made.cert.der().clone()], key).context("cannot use the certificate made")?, None)
    }

    fn new(shown: CertifiedKey, files: Option<(PathBuf, PathBuf)>) -> anyhow::Result<Self> {
        let shown = Arc::new(Shown(RwLock::new(Arc::new(shown))));
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .context("TLS versions")?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        Ok(Self { config: Arc::new(config), shown, files })
    }

    /// Reads the files again; new handshakes show what they hold. On an error the old certificate stays.
    pub fn reload(&self) -> anyhow::Result<()> {
        let Some((certificate, key)) = &self.files else { return Ok(()) };
        let fresh = Arc::new(read(certificate, key)?);
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<CertifiedKey> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable("tls.certificate", certificate, &error, "-----BEGIN CERTIFICATE-----"))?;
    if chain.is_empty() {
        let none = pem::Error::NoItemsFound;
        return Err(unreadable("tls.certificate", certificate, &none, "-----BEGIN CERTIFICATE-----"));
    }
    let key_der = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| unreadable("tls.key", key, &error, "-----BEGIN PRIVATE KEY-----, not encrypted"))?;
    certified(chain, key_der).map_err(|error| {
        let (certificate, key) = (certificate.display(), key.display());
        match error {
            rustls::Error::InconsistentKeys(_) => anyhow!(
                "tls: {certificate} and {key} cannot be used together: the key belongs to another certificate; name \
                 the two that were made together, and put the server's own certificate first in its file"
            ),
            rustls::Error::InvalidCertificate(_) => {
                anyhow!("tls.certificate: the first certificate in {certificate} is damaged; have it issued again")
            }
            error => anyhow!(
                "tls.key: the key in {key} cannot be used ({error}); RSA of 2048 to 8192 bits, ECDSA (P-256, P-384, \
                 P-521) and Ed25519 can"
            ),
        }
    })
}

/// Why a PEM file brought nothing, and what to do. Its content is never repeated: it may be a key.
fn unreadable(setting: &str, path: &Path, error: &pem::Error, expected: &str) -> anyhow::Error {
    let path = path.display();
    match error {
        pem::Error::Io(error) => {
            let help = match error.kind() {
                ErrorKind::NotFound => "name the file that is meant",
                ErrorKind::PermissionDenied => "let the user that Posthouse runs as read it",
                _ => "name a file that can be read",
            };
            anyhow!("{setting}: cannot read {path}: {error}; {help}")
        }
        pem::Error::NoItemsFound => {
            anyhow!("{setting}: there is nothing to use in {path}; what is needed begins with {expected}")
        }
        _ => anyhow!("{setting}: {path} is damaged, it is not whole PEM; write it again. It begins with {expected}"),
    }
}

fn certified(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<CertifiedKey, rustls::Error> {
    CertifiedKey::from_der(chain, key, &provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_checked_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
        let refused = |parts: &[&str]| {
            let error = format!("{:#}", Tls::from_files(&certificate, &key).unwrap_err());
            assert!(parts.iter().all(|part| error.contains(part)), "{parts:?} in {error}");
        };
        refused(&["tls.certificate", "cert.pem", "No such file", "name the file"]);

        let one = rcgen::generate_simple_self_signed(vec!["one.test".to_owned()]).unwrap();
        let two = rcgen::generate_simple_self_signed(vec!["two.test".to_owned()]).unwrap();
        std::fs::write(&certificate, "").unwrap();
        refused(&["tls.certificate", "nothing to use in", "BEGIN CERTIFICATE"]);
        std::fs::write(&certificate, &one.cert.pem()[..100]).unwrap();
        refused(&["tls.certificate", "is damaged"]);
        std::fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        std::fs::write(&key, "nothing").unwrap();
        refused(&["tls.key", "key.pem", "BEGIN PRIVATE KEY"]);
        std::fs::write(&key, two.signing_key.serialize_pem()).unwrap();
        refused(&["tls.certificate", "cert.pem is damaged"]);
        std::fs::write(&certificate, one.cert.pem()).unwrap();
        refused(&["cannot be used together", "made together"]);
        std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
        refused(&["tls.key", "key.pem cannot be used", "Ed25519"]);

        std::fs::write(&key, one.signing_key.serialize_pem()).unwrap();
        let tls = Tls::from_files(&certificate, &key).unwrap();
        let shown = || tls.shown.0.read().unwrap().cert[0].clone();
        assert_eq!(&shown(), one.cert.der());
        std::fs::write(&certificate, two.cert.pem()).unwrap();
        assert!(tls.reload().is_err(), "half replaced files are refused");
        assert_eq!(&shown(), one.cert.der(), "the old one stays");
        std::fs::write(&key, two.signing_key.serialize_pem()).unwrap();
        tls.reload().unwrap();
        assert_eq!(&shown(), two.cert.der());
    }
}
