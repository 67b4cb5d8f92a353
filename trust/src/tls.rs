//! TLS 1.3 by certificates on both sides, and by the server's alone for HTTP.
//!
//! No session is resumed: whoever comes back shows the certificate anew, so that one that was
//! revoked or has expired lets nobody in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, DnsName, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::Deserialize;

use crate::{CONTROLLER, check_name, files};

/// One side's files, all PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// Certificates of the authorities that the other side's may be of.
    pub ca: PathBuf,
    /// The own certificate.
    pub certificate: PathBuf,
    /// Its key, which not everybody may be able to read.
    pub key: PathBuf,
    /// Lists of certificates that hold no more, one of each authority.
    #[serde(default)]
    pub revoked: Option<PathBuf>,
}

impl TlsFiles {
    /// Those of `name` in the folder of an [`Authority`](crate::Authority).
    pub fn of(folder: &Path, name: &str) -> Self {
        let file = |name: String| folder.join(name);
        Self {
            ca: file("ca.crt".to_owned()),
            certificate: file(format!("{name}.crt")),
            key: file(format!("{name}.key")),
            revoked: None,
        }
    }

    fn roots(&self) -> Result<Arc<RootCertStore>> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).with_context(|| self.ca.display().to_string())?;
        }
        Ok(Arc::new(roots))
    }

    fn revoked(&self) -> Result<Vec<CertificateRevocationListDer<'static>>> {
        let Some(path) = &self.revoked else { return Ok(Vec::new()) };
        let place = || path.display().to_string();
        let lists = CertificateRevocationListDer::pem_slice_iter(&files::read(path)?)
            .collect::<Result<Vec<_>, _>>()
            .with_context(place)?;
        ensure!(!lists.is_empty(), "{}: no list of revoked certificates is in it", place());
        Ok(lists)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let place = || path.display().to_string();
    let found = CertificateDer::pem_slice_iter(&files::read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .with_context(place)?;
    ensure!(!found.is_empty(), "{}: no certificate is in it", place());
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let bytes = files::read_secret(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).with_context(|| path.display().to_string())
}

/// What a controller receives nodes by.
#[derive(Clone, Debug)]
pub struct NodeServer {
    config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl NodeServer {
    /// Reads it from the controller's files.
    ///
    /// # Errors
    /// Which file can't be used, and why.
    pub fn read(files: &TlsFiles) -> Result<Self> {
        let verifier = WebPkiClientVerifier::builder_with_provider(files.roots()?, provider())
            .with_crls(files.revoked()?)
            .only_check_end_entity_revocation()
            .build()
            .context("revoked")?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier.clone());
        let config = config.with_single_cert(certificates(&files.certificate)?, key(&files.key)?);
        let mut config = config.with_context(|| files.certificate.display().to_string())?;
        forget(&mut config);
        Ok(Self { config: Arc::new(config), verifier })
    }

    /// For the handshakes.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Whether who was let in once would be let in now.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, peer: &Peer) -> Result<(), String> {
        let (own, rest) = peer.0.split_first().ok_or("it has shown no certificate")?;
        let checked = self.verifier.verify_client_cert(own, rest, UnixTime::now());
        checked.map(drop).map_err(|problem| problem.to_string())
    }
}

/// Has a server let nobody go on where they left.
fn forget(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

/// A node by the certificates that it has shown.
#[derive(Clone, Debug)]
pub struct Peer(Vec<CertificateDer<'static>>);

impl Peer {
    /// The other side of a connection whose handshake is over.
    pub fn of(shown: Option<&[CertificateDer<'_>]>) -> Self {
        let shown = shown.unwrap_or_default().iter();
        Self(shown.map(|certificate| certificate.clone().into_owned()).collect())
    }

    /// Whether its certificate is that of the node called `name`.
    pub fn is(&self, name: &str) -> bool {
        // As certificates compare names, large letters are small ones.
        if check_name(name).is_err() {
            return false;
        }
        let Some(Ok(own)) = self.0.first().map(ParsedCertificate::try_from) else { return false };
        let Ok(name) = DnsName::try_from(name) else { return false };
        verify_server_name(&own, &ServerName::DnsName(name)).is_ok()
    }
}

/// What a node calls its controller by.
///
/// # Errors
/// Which file can't be used, and why.
pub fn node_client(files: &TlsFiles) -> Result<Arc<ClientConfig>> {
    let verifier = WebPkiServerVerifier::builder_with_provider(files.roots()?, provider())
        .with_crls(files.revoked()?)
        .only_check_end_entity_revocation()
        .build()
        .context("revoked")?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_webpki_verifier(verifier);
    let config = config.with_client_auth_cert(certificates(&files.certificate)?, key(&files.key)?);
    let mut config = config.with_context(|| files.certificate.display().to_string())?;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Whom a node calls.
pub fn controller() -> ServerName<'static> {
    // It is a name of a host: tests would not get past this.
    ServerName::DnsName(DnsName::try_from(CONTROLLER).expect("a plain name"))
}

/// The certificate that HTTP is served by.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTls {
    /// The certificate of a name or an address that readers know the host by, PEM.
    pub certificate: PathBuf,
    /// Its key, which not everybody may be able to read.
    pub key: PathBuf,
}

/// What HTTP is served by.
///
/// # Errors
/// Which file can't be used, and why.
pub fn http_server(files: &HttpTls) -> Result<Arc<ServerConfig>> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(certificates(&files.certificate)?, key(&files.key)?);
    let mut config = config.with_context(|| files.certificate.display().to_string())?;
    forget(&mut config);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
