//! The certificate that every role shows: read from files and read again on request, or made up for a trial.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, anyhow};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
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
        Self::new(certified(vec![made.cert.der().clone()], key)?, None)
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
        .with_context(|| format!("tls.certificate: cannot read {}", certificate.display()))?;
    if chain.is_empty() {
        return Err(anyhow!("tls.certificate: {} holds no PEM certificate", certificate.display()));
    }
    let key_der = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("tls.key: cannot read a private key from {}", key.display()))?;
    certified(chain, key_der)
        .with_context(|| format!("tls: {} and {} cannot be used together", certificate.display(), key.display()))
}

fn certified(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> anyhow::Result<CertifiedKey> {
    Ok(CertifiedKey::from_der(chain, key, &provider())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_checked_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
        let missing = format!("{:#}", Tls::from_files(&certificate, &key).unwrap_err());
        assert!(missing.contains("cert.pem") && missing.contains("tls.certificate"), "{missing}");

        let one = rcgen::generate_simple_self_signed(vec!["one.test".to_owned()]).unwrap();
        let two = rcgen::generate_simple_self_signed(vec!["two.test".to_owned()]).unwrap();
        std::fs::write(&certificate, one.cert.pem()).unwrap();
        std::fs::write(&key, "nothing").unwrap();
        let no_key = format!("{:#}", Tls::from_files(&certificate, &key).unwrap_err());
        assert!(no_key.contains("key.pem") && no_key.contains("tls.key"), "{no_key}");
        std::fs::write(&key, two.signing_key.serialize_pem()).unwrap();
        let mixed = format!("{:#}", Tls::from_files(&certificate, &key).unwrap_err());
        assert!(mixed.contains("cannot be used together"), "{mixed}");

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
