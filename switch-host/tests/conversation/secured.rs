//! Controllers that a switch speaks TLS with, over real sockets: the right one, and others that
//! stand where it should be.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use calumma_switch_host::TlsFiles;
use calumma_trust::tls::{HttpTls, NodeServer, Peer, http_server};
use calumma_trust::{Authority, CONTROLLER};
use calumma_wire::FrameReader;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// An authority's folder, which goes when it is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(nodes: &[&str]) -> Self {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("calumma-secured-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        let mut authority = Authority::init(&path, &[], 1).unwrap();
        nodes.iter().for_each(|name| authority.issue(name, 1).unwrap());
        Self(path)
    }

    pub(crate) fn files(&self, name: &str) -> TlsFiles {
        TlsFiles::of(&self.0, name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A switch that looks for its controller.
struct Caller {
    conversation: Conversation,
    switch: Switch,
}

impl Caller {
    fn new(listener: &TcpListener, files: impl Into<Option<TlsFiles>>) -> Self {
        let address = listener.local_addr().unwrap().to_string();
        let conversation = Conversation::new(identity(), address, files.into(), 1 << 20);
        Self { conversation, switch: Switch::default() }
    }

    /// Steps until `done` holds, and wants no step to wait for the other side.
    fn steps_until(&mut self, done: impl Fn(&Self) -> bool) {
        let since = Instant::now();
        while !done(self) {
            assert!(since.elapsed() < PATIENCE);
            let begun = Instant::now();
            self.conversation.step(NOW_NS, &mut self.switch);
            assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

type Server = StreamOwned<ServerConnection, TcpStream>;

fn accept(listener: &TcpListener, config: Arc<ServerConfig>) -> Server {
    let (socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(ServerConnection::new(config).unwrap(), socket)
}

/// The next message that a switch sends.
fn message(server: &mut impl Read, reader: &mut FrameReader) -> Message {
    let mut bytes = [0; 4096];
    loop {
        if let Some(message) = reader.next_message().unwrap() {
            return message;
        }
        let read = server.read(&mut bytes).unwrap();
        assert!(read > 0, "the switch has gone");
        reader.push(&bytes[..read]);
    }
}

/// Both ways, more of it than fits into buffers at once, and an orderly end.
#[test]
fn a_conversation_by_tls_is_that_without() {
    const PROBES: u64 = 4000;
    let folder = Folder::new(&["e1"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut caller = Caller::new(&listener, folder.files("e1"));
    let config = NodeServer::read(&folder.files(CONTROLLER)).unwrap().config();
    let serving = std::thread::spawn(move || {
        let (mut server, mut reader) = (accept(&listener, config), FrameReader::new());
        let hello = message(&mut server, &mut reader);
        assert!(matches!(hello, Message::Hello(_)), "{hello:?}");
        assert!(Peer::of(server.conn.peer_certificates()).is("e1"));
        let mut frames = Vec::new();
        (0..PROBES).for_each(|sent_ns| Message::Probe { sent_ns }.encode(&mut frames));
        server.write_all(&frames).unwrap();
        for wanted in 0..PROBES {
            let Message::Echo { sent_ns, .. } = message(&mut server, &mut reader) else { panic!() };
            assert_eq!(sent_ns, wanted);
        }
        // A farewell, and not merely the end of the bytes.
        assert_eq!(server.read(&mut [0; 16]).unwrap(), 0);
    });
    caller.steps_until(|caller| caller.conversation.is_connected());
    let since = Instant::now();
    while !serving.is_finished() && since.elapsed() < Duration::from_secs(3) {
        caller.conversation.step(NOW_NS, &mut caller.switch);
    }
    assert_eq!(caller.conversation.finish(Duration::from_secs(1)), 0);
    serving.join().unwrap();
}

/// Whoever sits where the controller's address leads: with another authority's certificate, with a
/// switch's of the right one, with what a switch serves its metrics by, and with none that the
/// switch is asked for.
#[test]
fn who_is_not_the_controller_is_told_nothing() {
    let (folder, stranger) = (Folder::new(&["e1", "e2"]), Folder::new(&[]));
    let mut authority = Authority::open(&folder.0).unwrap();
    assert!(authority.issue_metrics("e2", &["Controller".to_owned()], 1).is_err());
    let metrics = authority.issue_metrics("e2", &["127.0.0.1".to_owned()], 1).unwrap();
    let of =
        |TlsFiles { certificate, key, .. }| http_server(&HttpTls { certificate, key }).unwrap();
    let files = [stranger.files(CONTROLLER), folder.files("e2"), folder.files(&metrics)];
    let others = files.map(of);
    for config in others {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut caller = Caller::new(&listener, folder.files("e1"));
        let serving = std::thread::spawn(move || {
            let mut server = accept(&listener, config);
            let told = server.read(&mut [0; 16]);
            assert!(told.is_err(), "an alert: {told:?}");
        });
        caller.steps_until(|_| serving.is_finished());
        serving.join().unwrap();
        assert!(!caller.conversation.is_connected());
    }
}

/// It takes the connection, and then nothing more: the switch goes on measuring, and looks anew.
#[test]
fn a_controller_that_shakes_no_hands_is_left() {
    let folder = Folder::new(&["e1"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut caller = Caller::new(&listener, folder.files("e1"));
    let serving = std::thread::spawn(move || {
        let silent = listener.accept().unwrap();
        let since = Instant::now();
        let again = listener.accept().unwrap();
        drop((silent, again));
        since.elapsed()
    });
    caller.steps_until(|_| serving.is_finished());
    assert!(!caller.conversation.is_connected());
    let patience = serving.join().unwrap();
    assert!(patience < Duration::from_secs(8), "{patience:?}");
}

/// A certificate is renewed by putting another one in its place.
#[test]
fn a_switch_takes_another_certificate_without_being_started_anew() {
    let (folder, stranger) = (Folder::new(&[]), Folder::new(&["e1"]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let files = folder.files("e1");
    let put = |from: &Folder| {
        let TlsFiles { certificate, key, .. } = from.files("e1");
        std::fs::copy(certificate, &files.certificate).unwrap();
        std::fs::copy(key, &files.key).unwrap();
    };
    put(&stranger);
    let mut caller = Caller::new(&listener, files.clone());
    let server = NodeServer::read(&folder.files(CONTROLLER)).unwrap();
    let config = server.config();
    let serving = std::thread::spawn(move || {
        let mut refused = accept(&listener, config.clone());
        assert!(refused.read(&mut [0; 16]).is_err(), "of another authority");
        drop(refused);
        let mut server = accept(&listener, config);
        assert!(matches!(message(&mut server, &mut FrameReader::new()), Message::Hello(_)));
    });
    let since = Instant::now();
    while caller.conversation.is_connected() || since.elapsed() < Duration::from_millis(300) {
        caller.conversation.step(NOW_NS, &mut caller.switch);
        std::thread::sleep(Duration::from_millis(1));
        assert!(since.elapsed() < PATIENCE);
    }
    Authority::open(&folder.0).unwrap().issue("e1", 1).unwrap();
    caller.steps_until(|_| serving.is_finished());
    serving.join().unwrap();
}

/// `[tls]` comes into its file while it is connected without: that connection goes on, the next one
/// is by TLS, and no other; what it has measured until then is sent over that.
#[test]
fn a_switch_moves_to_tls_with_its_next_connection_and_keeps_what_it_holds() {
    let folder = Folder::new(&["e1"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut caller = Caller::new(&listener, None);
    let config = NodeServer::read(&folder.files(CONTROLLER)).unwrap().config();
    let welcome = || {
        let mut frame = Vec::new();
        welcome(vec![setup()]).encode(&mut frame);
        frame
    };
    let epoch = |message: Message| match message {
        Message::Side(side) => side.epoch,
        other => panic!("{other:?} instead of a side"),
    };
    let (changed, is_changed) = std::sync::mpsc::channel();
    let serving = std::thread::spawn(move || {
        let (mut plain, mut reader) = (listener.accept().unwrap().0, FrameReader::new());
        plain.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(message(&mut plain, &mut reader), Message::Hello(_)));
        plain.write_all(&welcome()).unwrap();
        assert_eq!(epoch(message(&mut plain, &mut reader)), NOW);
        is_changed.recv().unwrap();
        assert_eq!(epoch(message(&mut plain, &mut reader)), NOW + 1, "by the same connection");
        drop(plain);
        // A controller that has no TLS yet does not know what to make of this.
        let mut early = listener.accept().unwrap().0;
        let mut first = [0];
        early.read_exact(&mut first).unwrap();
        assert_eq!(first, [22], "the record of a handshake");
        drop(early);

        let (mut server, mut reader) = (accept(&listener, config), FrameReader::new());
        assert!(matches!(message(&mut server, &mut reader), Message::Hello(_)));
        server.write_all(&welcome()).unwrap();
        (0..3).map(|_| epoch(message(&mut server, &mut reader))).collect::<Vec<_>>()
    });
    let has_begun = |caller: &Caller| !caller.switch.begun.is_empty();
    caller.steps_until(has_begun);
    caller.conversation.side(side(SystemId::CHAMELEMON, NOW));
    caller.conversation.flush();
    caller.conversation.transport_mut().set_tls(Some(folder.files("e1")));
    changed.send(()).unwrap();
    caller.conversation.side(side(SystemId::CHAMELEMON, NOW + 1));
    caller.conversation.flush();
    caller.steps_until(|caller| !caller.conversation.is_connected());
    caller.conversation.side(side(SystemId::CHAMELEMON, NOW + 2));
    caller.steps_until(|_| serving.is_finished());
    assert_eq!(serving.join().unwrap(), [NOW, NOW + 1, NOW + 2]);
    assert_eq!(caller.switch.begun.len(), 1, "the same session");
}
