//! A modelled switch behind the driver's interface, a controller that the test plays, and the
//! daemon between them; the switch's ports are cables into the test.

// Each test file is a program of its own and uses its part of this one.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use calumma_chamelemon::frames::{FrameReader, Message};
use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_epoch::{EpochClock, Guards};
use calumma_interface::{Cable, MAX_FRAME, Plug};
use calumma_sketch::{Arithmetic, HashKey, Level};
use calumma_switch_host::{Signals, unix_ns};
use calumma_switchd::chamelemon::program;
use calumma_switchd::collector::Way;
use calumma_switchd::config::Config;
use calumma_switchd::system::{Build, Constants, System, Target};
use calumma_switchd::{SYSTEMS, daemon};
use calumma_tna::{Program, Switch};
use calumma_tna_driver::{Driver, Pipe, Port};
use calumma_wire::Role;

pub(crate) const HOST: u16 = 1;
pub(crate) const FABRIC: u16 = 2;
pub(crate) const CPU: u16 = 64;

/// Length of an epoch: the model takes a few hundred milliseconds to hand out a small group by
/// packets.
pub(crate) const EPOCH_MS: u64 = 800;

/// How long anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A small layout, so that the model collects it within a fraction of an epoch.
pub(crate) fn layout(arithmetic: Arithmetic) -> Layout {
    Layout {
        arithmetic,
        upstream_buckets: 512,
        downstream_buckets: 384,
        classifier: vec![Level::new(8, 2048), Level::new(16, 1024)],
        ..Layout::default()
    }
}

pub(crate) fn attention() -> Attention {
    Attention {
        t_h: 30,
        t_l: 3,
        sample_rate: SampleRate::new(0.4).unwrap(),
        partition: Partition { hh: 200, hl: 200, ll: 112 },
    }
}

pub(crate) const KEY: [u8; 32] = [7; 32];

/// The program's sources with the constants of a layout and tables of `ports` ports, compiled.
pub(crate) fn program(layout: &Layout, ports: usize) -> Program {
    program_with(layout, ports, &[])
}

/// The same with further macros.
pub(crate) fn program_with(layout: &Layout, ports: usize, macros: &[&str]) -> Program {
    let folder = sources("edge.p4");
    let contract = program::contract(layout).unwrap();
    std::fs::write(folder.0.join("include/chamelemon/generated/contract.p4"), contract).unwrap();
    let sizes = folder.0.join("include/sizes.p4");
    let text = std::fs::read_to_string(&sizes).unwrap();
    std::fs::write(&sizes, text.replace("PORTS = 512", &format!("PORTS = {ports}"))).unwrap();
    let mut defines = program::defines(layout);
    defines.extend(macros.iter().map(|name| ((*name).to_owned(), "1".to_owned())));
    Program::load(folder.0.join("edge.p4"), &defines).unwrap()
}

/// A copy of a program's sources.
fn sources(program: &str) -> Folder {
    let (all, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), Folder::new());
    copy(&all.join("include"), &folder.0.join("include"));
    std::fs::copy(all.join(program), folder.0.join(program)).unwrap();
    folder
}

/// The program of a system on switches of that role, built for a controller's configuration.
pub(crate) fn built(system: &dyn System, role: Role, controller: &str) -> Program {
    let Build { constants, defines, .. } =
        system.build((role, Target::Tofino), &controller.parse().unwrap()).unwrap();
    let folder = sources(system.program());
    if let Some(Constants { file, text }) = constants {
        std::fs::write(folder.0.join(file), text).unwrap();
    }
    Program::load(folder.0.join(system.program()), &defines).unwrap()
}

/// A folder that goes with its value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("calumma-switchd-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// A modelled switch and its driver. Dropping it ends both, as a driver that dies does.
pub(crate) struct Model {
    pub(crate) address: SocketAddr,
    pub(crate) host: Cable,
    pub(crate) fabric: Cable,
    /// The daemon's end of the CPU port; taken by the daemon.
    pub(crate) cpu: Option<Cable>,
    stop: tokio::sync::watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Model {
    /// Starts one; at `address`, or wherever there is room.
    pub(crate) fn start(program: &Program, address: Option<SocketAddr>) -> Model {
        Model::named("edge", program, address)
    }

    /// Starts one whose driver knows the program by that name.
    pub(crate) fn named(name: &str, program: &Program, address: Option<SocketAddr>) -> Model {
        let (host, at_host) = Cable::pair().unwrap();
        let (fabric, at_fabric) = Cable::pair().unwrap();
        let (cpu, at_cpu) = Cable::pair().unwrap();
        let ports = [(HOST, at_host), (FABRIC, at_fabric), (CPU, at_cpu)]
            .map(|(number, cable)| Port { number, plug: Box::new(cable) });
        let (pipe, _) = Pipe::start(Switch::new(program), ports.into()).unwrap();
        let driver = Driver::new(pipe, name, program);
        let wanted = address.unwrap_or_else(|| "127.0.0.1:0".parse().unwrap());
        let listener = TcpListener::bind(wanted).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, mut stopped) = tokio::sync::watch::channel(false);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let stop = async {
                    let _ = stopped.wait_for(|stop| *stop).await;
                };
                driver.serve_on(listener, stop).await.unwrap();
            });
        });
        Model { address, host, fabric, cpu: Some(cpu), stop, thread: Some(thread) }
    }

    /// The next frame that leaves by a port, within [`LIMIT`].
    pub(crate) fn next(cable: &mut Cable) -> Vec<u8> {
        let mut buffer = vec![0; MAX_FRAME];
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(frame) = cable.receive(&mut buffer) {
                return frame.to_vec();
            }
            assert!(Instant::now() < end, "a frame leaves the switch");
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The daemon, running.
pub(crate) struct Daemon {
    signals: Signals,
    folder: Folder,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Daemon {
    pub(crate) fn start(config: Config, way: Way) -> Daemon {
        Daemon::start_with(&SYSTEMS, config, way)
    }

    /// Starts one that has those systems.
    pub(crate) fn start_with(
        systems: &'static [&'static dyn System],
        config: Config,
        way: Way,
    ) -> Daemon {
        // Another test may have been first.
        let _ = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_test_writer()
            .try_init();
        let (signals, folder) = (Signals::default(), Folder::new());
        let (flags, path) = (signals.clone(), folder.0.join("switchd.toml"));
        let thread =
            std::thread::spawn(move || daemon::run_by(systems, config, &path, way, &flags));
        Daemon { signals, folder, thread: Some(thread) }
    }

    /// Has it read its configuration again, which is now that text.
    pub(crate) fn reload(&self, text: &str) {
        std::fs::write(self.folder.0.join("switchd.toml"), text).unwrap();
        self.signals.reload.store(true, Ordering::Relaxed);
    }

    /// What it ends with by itself.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signals.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// A configuration for that driver and controller.
pub(crate) fn config(driver: SocketAddr, controller: SocketAddr) -> Config {
    Config::parse(&text(driver, controller), "the test's configuration").unwrap()
}

/// The text of [`config`].
pub(crate) fn text(driver: SocketAddr, controller: SocketAddr) -> String {
    format!(
        "name = \"e2\"\ncontroller = \"{controller}\"\n[driver]\naddress = \"{driver}\"\n\
         [collection]\ninterface = \"a cable\"\n[carrier]\ndscp = 40\n\
         [[port]]\nnumber = {HOST}\nrole = \"host\"\npeer = {FABRIC}\n\
         [[port]]\nnumber = {FABRIC}\nrole = \"fabric\"\npeer = {HOST}\n"
    )
}

/// An address that nobody listens at: the test has hung up.
pub(crate) fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// What Prometheus reads there.
pub(crate) fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: e2\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// A metric's value; none where it is not shown.
pub(crate) fn value(text: &str, metric: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    values.map(|value| value.parse().unwrap()).next()
}

/// Collection through a cable.
pub(crate) fn packets(cpu: impl Plug + 'static) -> Way {
    Way::Packets { port: Box::new(cpu), retry: Duration::from_millis(150) }
}

/// A CPU port that loses every third frame from the switch and every fifth to it.
pub(crate) struct Lossy {
    cable: Cable,
    received: u32,
    sent: u32,
}

impl Lossy {
    pub(crate) fn new(cable: Cable) -> Lossy {
        Lossy { cable, received: 0, sent: 0 }
    }
}

impl Plug for Lossy {
    fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        loop {
            let length = self.cable.receive(buffer)?.len();
            self.received += 1;
            if !self.received.is_multiple_of(3) {
                return Some(&buffer[..length]);
            }
        }
    }

    fn send(&mut self, frame: &[u8]) {
        self.sent += 1;
        if !self.sent.is_multiple_of(5) {
            self.cable.send(frame);
        }
    }
}

impl AsFd for Lossy {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.cable.as_fd()
    }
}

/// The controller that the test plays.
pub(crate) struct Controller {
    listener: TcpListener,
    layout: Layout,
    attention: Attention,
    pub(crate) clock: EpochClock,
    link: Option<(TcpStream, FrameReader)>,
}

impl Controller {
    /// One that lets epochs last that long.
    pub(crate) fn new(layout: &Layout, epoch_ms: u64) -> Controller {
        Controller::of(layout, attention(), epoch_ms)
    }

    /// The same, with another attention at first.
    pub(crate) fn of(layout: &Layout, attention: Attention, epoch_ms: u64) -> Controller {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let layout = layout.clone();
        let guards = Guards { clock_ns: 5_000_000, flight_ns: 150_000_000 };
        let clock = EpochClock::new(epoch_ms * 1_000_000, guards).unwrap();
        Controller { listener, layout, attention, clock, link: None }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Takes the daemon's connection and welcomes it; gives its hello.
    pub(crate) fn welcome(&mut self) -> Message {
        self.welcome_with(calumma_chamelemon::frames::OLDEST_VERSION)
    }

    /// The same, and has it speak that version.
    pub(crate) fn welcome_with(&mut self, version: u8) -> Message {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        self.link = Some((stream, FrameReader::new()));
        let hello = self.receive(|message| matches!(message, Message::Hello { .. }));
        let clock = self.clock;
        self.send(&Message::Welcome {
            version,
            layout: self.layout.clone(),
            hash_key: HashKey::from_bytes(KEY),
            epoch_length_ns: clock.length_ns(),
            guards: clock.guards(),
            attention: self.attention,
            effective_epoch: clock.epoch_at(unix_ns()) + 1,
        });
        hello
    }

    /// Hangs up.
    pub(crate) fn vanish(&mut self) {
        self.link = None;
    }

    pub(crate) fn send(&mut self, message: &Message) {
        if let Message::Reconfigure { attention, .. } = message {
            self.attention = *attention;
        }
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.link.as_mut().unwrap().0.write_all(&frame).unwrap();
    }

    /// The next message of the daemon, if there is one.
    pub(crate) fn next(&mut self) -> Option<Message> {
        let (stream, reader) = self.link.as_mut().unwrap();
        if let Some(message) = reader.next(Some(&self.layout)).unwrap() {
            return Some(message);
        }
        let mut bytes = vec![0; 1 << 16];
        // A time-out says that there is nothing yet.
        if let Ok(length) = stream.read(&mut bytes) {
            reader.push(&bytes[..length]);
        }
        reader.next(Some(&self.layout)).unwrap()
    }

    /// The first message that is `wanted`, within [`LIMIT`].
    pub(crate) fn receive(&mut self, wanted: impl Fn(&Message) -> bool) -> Message {
        let end = Instant::now() + LIMIT;
        loop {
            match self.next() {
                Some(message) if wanted(&message) => return message,
                _ => assert!(Instant::now() < end, "the daemon says what it should"),
            }
        }
    }
}
