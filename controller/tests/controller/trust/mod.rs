//! Who may talk: real handshakes over loopback, with certificates that hold and others.

mod attacks;
mod http;
mod moving;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use calumma_trust::{Authority, CONTROLLER, TlsFiles, tls};
use calumma_wire::VERSION;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;

use crate::peer::{PATIENCE, Peer};
use crate::stories::{Controller, Edge, encoded, hello, tokens};

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("calumma-trust-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A controller that speaks TLS, and the authority that it believes.
struct Secured {
    controller: Controller,
    authority: Folder,
}

impl Secured {
    /// With these edges, each of which has a certificate.
    fn start(edges: &[&str], extra: &str) -> Self {
        let (tokens, _) = tokens();
        Self::start_by(edges, &format!("http = '127.0.0.1:0'\ntokens = {tokens:?}\n{extra}"))
    }

    /// The same where `extra` says where HTTP is, and what it goes by.
    fn start_by(edges: &[&str], extra: &str) -> Self {
        let folder = Folder::new();
        let mut authority = Authority::init(&folder.0, &["127.0.0.1".to_owned()], 1).unwrap();
        edges.iter().for_each(|name| authority.issue(name, 1).unwrap());
        let TlsFiles { ca, certificate, key, .. } = TlsFiles::of(&folder.0, CONTROLLER);
        let revoked = folder.0.join("revoked.pem");
        let extra = format!(
            "{extra}\ntls = {{ ca = {ca:?}, certificate = {certificate:?}, key = {key:?}, \
             revoked = {revoked:?} }}\n\
             http_tls = {{ certificate = {certificate:?}, key = {key:?} }}"
        );
        let text = format!("edges = {edges:?}\nlisten = '127.0.0.1:0'\n{extra}");
        Self { controller: Controller::start_by(&text), authority: folder }
    }

    fn listen(&self) -> SocketAddr {
        self.controller.running.listen()
    }

    fn files(&self, name: &str) -> TlsFiles {
        TlsFiles::of(&self.authority.0, name)
    }

    /// A switch's way to the controller by the certificate of `name`: whoever connects to what is
    /// given speaks with the controller.
    fn way_of(&self, name: &str) -> SocketAddr {
        let connector = TlsConnector::from(tls::node_client(&self.files(name)).unwrap());
        let to = self.listen();
        let runtime = &self.controller.runtime;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((mut plain, _)) = listener.accept().await {
                let connector = connector.clone();
                tokio::spawn(async move {
                    let stream = tokio::net::TcpStream::connect(to).await?;
                    let mut secured = connector.connect(tls::controller(), stream).await?;
                    tokio::io::copy_bidirectional(&mut plain, &mut secured).await.map(drop)
                });
            }
        });
        address
    }

    fn join(&self, name: &str) -> Edge {
        Edge::introduce_at(self.way_of(name), &hello(name), VERSION)
    }

    /// Has the controller read its files again.
    fn reload(&self) {
        let config = self.controller.running.hub().config().clone();
        self.controller.running.reload(&config);
    }
}

/// What a controller says to whoever shows `config` and then the hello of `name`: all bytes until
/// it closes.
fn answer(to: SocketAddr, config: Arc<ClientConfig>, name: &str) -> io::Result<Vec<u8>> {
    let socket = TcpStream::connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let connection = ClientConnection::new(config, tls::controller()).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(&encoded(&hello(name)))?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if answer.is_empty() => Err(error),
        _ => Ok(answer),
    }
}

/// Each edge by its own certificate; reports come as they do without.
#[test]
fn edges_with_certificates_are_served_as_those_without_tls_are() {
    let secured = Secured::start(&["e1", "e2"], crate::stories::PATIENT);
    let [mut e1, mut e2] = ["e1", "e2"].map(|name| secured.join(name));
    let epoch = e1.settled_epoch(&mut e2);
    let world = e1.deliver_traffic(&mut e2, epoch);
    let report = secured.controller.report(epoch);
    assert!(report.complete);
    assert_eq!(crate::stories::lost(&report), world.lost);
}

/// Without the controller being started anew, or a frame lost of who has nothing to do with it.
#[test]
fn certificates_are_revoked_and_renewed_while_the_controller_runs() {
    let secured = Secured::start(&["e1", "e2"], crate::stories::PATIENT);
    let [mut e1, mut e2] = ["e1", "e2"].map(|name| secured.join(name));
    let config = tls::node_client(&secured.files("e1")).unwrap();
    let before = shown_by(secured.listen(), &config);
    Authority::open(&secured.authority.0).unwrap().revoke("e1").unwrap();
    secured.reload();
    assert!(e1.receive().is_none(), "it is sent away");
    let problem = answer(secured.listen(), config, "e1").unwrap_err().to_string();
    assert!(problem.to_lowercase().contains("revoked"), "{problem}");

    let mut authority = Authority::open(&secured.authority.0).unwrap();
    authority.issue("e1", 1).unwrap();
    authority.rotate(&[CONTROLLER.to_owned()], 1).unwrap();
    drop(authority);
    secured.reload();
    let mut e1 = secured.join("e1");
    let config = tls::node_client(&secured.files("e1")).unwrap();
    assert_ne!(shown_by(secured.listen(), &config), before, "the controller's own is another");
    let epoch = e1.settled_epoch(&mut e2);
    e1.deliver_traffic(&mut e2, epoch);
    assert!(secured.controller.report(epoch).complete, "e2 has stayed");
}

/// From one authority to another: first both are trusted, then the controller and one switch after
/// the other have new certificates, and at last only the new authority is trusted.
#[test]
fn the_authority_is_replaced_while_the_controller_runs() {
    let secured = Secured::start(&["e1", "e2"], crate::stories::PATIENT);
    let (old, new) = (&secured.authority.0, Folder::new());
    let mut authority = Authority::init(&new.0, &[], 1).unwrap();
    authority.issue("e1", 1).unwrap();
    authority.issue("e2", 1).unwrap();
    let read = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let put = |name: &str, text: String| std::fs::write(old.join(name), text).unwrap();
    let replace = |node: &str| {
        [".crt", ".key"].iter().for_each(|kind| {
            let name = format!("{node}{kind}");
            put(&name, read(&new.0, &name));
        });
    };
    let [e1, mut e2] = ["e1", "e2"].map(|name| secured.join(name));

    for name in ["ca.crt", "revoked.pem"] {
        put(name, read(old, name) + &read(&new.0, name));
    }
    replace(CONTROLLER);
    secured.reload();
    replace("e1");
    drop(e1);
    secured.controller.wait_until_gone("e1");
    let mut e1 = secured.join("e1");
    let epoch = e1.settled_epoch(&mut e2);
    e1.deliver_traffic(&mut e2, epoch);
    assert!(secured.controller.report(epoch).complete, "one by either authority");

    let old_e2 = tls::node_client(&secured.files("e2")).unwrap();
    ["ca.crt", "revoked.pem"].iter().for_each(|name| put(name, read(&new.0, name)));
    secured.reload();
    while e2.receive().is_some() {}
    assert!(answer(secured.listen(), old_e2, "e2").is_err(), "the old one counts no more");
    replace("e2");
    let mut e2 = secured.join("e2");
    let epoch = e1.settled_epoch(&mut e2);
    e1.deliver_traffic(&mut e2, epoch);
    assert!(secured.controller.report(epoch).complete, "e1 has stayed");
}

/// Files that can't be read leave everything as it was.
#[test]
fn a_reload_that_fails_lets_those_in_who_were_let_in_before() {
    let secured = Secured::start(&["e1", "e2"], crate::stories::PATIENT);
    let _e1 = secured.join("e1");
    std::fs::write(secured.authority.0.join("revoked.pem"), "rubbish").unwrap();
    secured.reload();
    let _e2 = secured.join("e2");
    assert!(secured.controller.running.hub().edges().iter().all(|edge| edge.connected));
}

/// The certificate that the controller shows.
fn shown_by(to: SocketAddr, config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut socket = TcpStream::connect(to).unwrap();
    let mut connection = ClientConnection::new(config.clone(), tls::controller()).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).unwrap();
    }
    connection.peer_certificates().unwrap()[0].to_vec()
}

/// A peer that says what it likes, by the certificate of `name`.
fn peer(secured: &Secured, name: &str, says: &str) -> Peer {
    let peer = Peer::connect(secured.way_of(name), VERSION);
    peer.send_bytes(&encoded(&hello(says)));
    peer
}
