//! Any bytes as each file that says who may talk: authorities' certificates, own ones, keys, lists
//! of what is revoked, tokens, and an authority's record; and as a certificate that a node shows.
//! No panic, and nobody is let in by bytes that the authority has not signed.
//!
//! Run with `cargo +nightly fuzz run fuzz-trust-files` in `trust/`. Real files for a start are
//! written to the folder that `CALUMMA_SEEDS` names.
#![no_main]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use calumma_trust::tls::{HttpTls, NodeServer, Peer, http_server, node_client};
use calumma_trust::{Authority, CONTROLLER, Role, TlsFiles, Tokens};
use libfuzzer_sys::fuzz_target;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Two folders that go by the process's number: a real authority's, and one for what is tried.
struct Folders {
    real: PathBuf,
    tried: PathBuf,
}

impl Folders {
    fn make() -> Self {
        let at = std::env::temp_dir().join(format!("calumma-fuzz-{}", std::process::id()));
        let folders = Self { real: at.join("real"), tried: at.join("tried") };
        fs::create_dir_all(&folders.tried).unwrap();
        Authority::init(&folders.real, &["127.0.0.1".to_owned()], 1).unwrap();
        folders
    }

    /// Puts `input` where every file is looked for.
    fn put(&self, input: &[u8]) -> PathBuf {
        let path = self.tried.join("ca.json");
        fs::write(&path, input).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

static FOLDERS: OnceLock<Folders> = OnceLock::new();

/// Files of an authority that nobody here trusts.
fn write_seeds(folder: &Path) {
    let mut other = Authority::init(&folder.join("pki"), &["host.example".to_owned()], 1).unwrap();
    ["e1", "leaf-3"].iter().for_each(|name| other.issue(name, 1).unwrap());
    other.issue_metrics("e1", &["192.0.2.1".to_owned()], 1).unwrap();
    other.revoke("e1").unwrap();
    let tokens = folder.join("tokens");
    Tokens::add(&tokens, "ada", Role::Operate).unwrap();
    Tokens::add(&tokens, "grafana", Role::Read).unwrap();
    for name in ["controller.crt", "leaf-3.crt"] {
        let certificate = CertificateDer::from_pem_file(folder.join("pki").join(name)).unwrap();
        fs::write(folder.join(name).with_extension("der"), certificate).unwrap();
    }
}

fuzz_target!(
    init: {
        FOLDERS.get_or_init(Folders::make);
        if let Some(folder) = std::env::var_os("CALUMMA_SEEDS") {
            write_seeds(Path::new(&folder));
        }
    },
    |input: &[u8]| {
        let folders = FOLDERS.get_or_init(Folders::make);
        let path = folders.put(input);
        if let Ok(tokens) = Tokens::list(&path) {
            assert!(Tokens::read(&path).is_ok());
            assert!(tokens.len() <= input.len() / 64);
        }
        let _ = Authority::open(&folders.tried).map(|authority| authority.issued().len());

        let real = TlsFiles::of(&folders.real, CONTROLLER);
        let with = |change: fn(&mut TlsFiles, PathBuf)| {
            let mut files = real.clone();
            change(&mut files, path.clone());
            files
        };
        let _ = NodeServer::read(&with(|files, path| files.ca = path));
        let _ = NodeServer::read(&with(|files, path| files.revoked = Some(path)));
        let _ = node_client(&with(|files, path| files.certificate = path));
        let _ = http_server(&HttpTls { certificate: path.clone(), key: path.clone() });

        let server = NodeServer::read(&real).unwrap();
        let shown = CertificateDer::from(input);
        let peer = Peer::of(Some(&[shown]));
        let _ = (peer.is("e1"), peer.is("leaf-3"), peer.is(CONTROLLER));
        assert!(server.check(&peer).is_err(), "let in by a certificate of no authority");
    }
);
