//! The switch as a process: started, listened to, told to stop.

#![allow(dead_code, reason = "each story uses what it needs")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use calumma_chamelemon::frames::{FrameReader, Message};
use calumma_chamelemon::{Attention, Layout};
use calumma_edge::status::Status;
use calumma_epoch::EpochClock;
use calumma_sketch::HashKey;

/// Longer than anything takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// EAL arguments that need no hugepages, no devices and no files.
pub(crate) const EAL: [&str; 5] = ["--no-huge", "-m", "256", "--no-pci", "--no-shconf"];

/// A folder of this test's own, gone when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty folder whose name contains `name`.
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("calumma-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file in it, and gives its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), content).unwrap();
        self.file(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running switch; killed where a test ends before it.
pub(crate) struct Edge {
    child: Child,
    lines: Receiver<String>,
    said: String,
}

impl Edge {
    /// Starts the switch with its own arguments and DPDK's, and waits until it forwards.
    pub(crate) fn start(arguments: &[&str], eal: &[String]) -> Self {
        let mut edge = Self::spawn(arguments, eal);
        edge.wait_for("forwarding");
        edge
    }

    /// Starts the switch, and waits for nothing.
    pub(crate) fn spawn(arguments: &[&str], eal: &[String]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_calumma-edge"))
            .args(arguments)
            .arg("--")
            .args(eal)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            said.lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
        });
        Self { child, lines, said: String::new() }
    }

    /// Waits until the switch says this in its log.
    pub(crate) fn wait_for(&mut self, words: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("the switch never said {words:?}, but:\n{}", self.said);
            };
            self.said += &line;
            self.said.push('\n');
            if line.contains(words) {
                return;
            }
        }
    }

    /// Sends a signal, by its name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// The process's number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the switch has ended; gives how, and all that it said.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "the switch does not end:\n{}", self.said);
            std::thread::sleep(Duration::from_millis(1));
        };
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(1)) {
            self.said += &line;
            self.said.push('\n');
        }
        (status, std::mem::take(&mut self.said))
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Accepts the first edge that calls, and sends it a welcome: epochs of this length, each packet
/// into the HH encoder. Controllers of that version name no carrier, and marks are in the ToS byte.
pub(crate) fn welcome(listener: &TcpListener, layout: &Layout, clock: EpochClock) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let mut welcome = Vec::new();
    Message::Welcome {
        version: calumma_chamelemon::frames::VERSION,
        layout: layout.clone(),
        hash_key: HashKey::from_bytes([5; 32]),
        epoch_length_ns: clock.length_ns(),
        guards: clock.guards(),
        attention: Attention::healthy(layout, 256),
        effective_epoch: 0,
    }
    .encode(&mut welcome);
    stream.write_all(&welcome).unwrap();
    stream
}

/// Hands on what an edge says, until it closes the connection or nobody listens any more.
pub(crate) fn listen(mut stream: TcpStream, layout: &Layout, heard: &Sender<Message>) {
    let (mut reader, mut buffer) = (FrameReader::new(), vec![0; 64 << 10]);
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 {
            return;
        }
        reader.push(&buffer[..read]);
        while let Some(message) = reader.next(Some(layout)).unwrap() {
            if heard.send(message).is_err() {
                return;
            }
        }
    }
}

/// Waits until something holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An iperf3 server for one transfer, in a network namespace, once it listens.
pub(crate) fn iperf3_server(namespace: &str) -> Child {
    let within = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, program]).args(arguments);
        command
    };
    let server = within("iperf3", &["-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
    wait_until("an iperf3 server", || {
        let listening = within("ss", &["-Hltn", "sport = :5201"]).output().unwrap();
        !listening.stdout.is_empty()
    });
    server
}

/// An address of this machine on which nobody listens.
pub(crate) fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The body of what an HTTP server answers to GET.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: e1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

/// A switch's status once it is as wanted.
pub(crate) fn status_when(address: &str, wanted: impl Fn(&Status) -> bool) -> Status {
    let end = Instant::now() + PATIENCE;
    loop {
        let status: Status = serde_json::from_str(&get(address, "/status")).unwrap();
        if wanted(&status) {
            return status;
        }
        assert!(Instant::now() < end, "{status:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The totals in a file that `--stats` wrote.
pub(crate) fn totals(path: impl AsRef<Path>) -> std::collections::BTreeMap<String, u64> {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}
