//! Load on a live controller: simulated edges that speak the real protocol, on time.
//!
//! Each edge has measured one epoch of a small network ([`Network`]) and sends it again for every
//! epoch, its number changed: ingress side at the flip, egress side after the guards, seal when the
//! timestamp bit is armed anew. Its clock is the machine's, so probes are answered truly. The
//! controller is a process of its own, whose CPU time is read from the kernel.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use calumma_chamelemon::frames::{FrameReader, Message};
use calumma_controller::report::{EpochReport, Timing};
use calumma_epoch::EpochClock;
use calumma_trust::{Authority, CONTROLLER, TlsFiles, tls};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::crowd::{Crowd, hello};
use crate::network::{HASH_KEY, Keys, Network};

/// Bytes before the epoch's number in the frames that have one: length, magic, version, kind,
/// system.
const EPOCH_AT: usize = 9;

/// Epochs at either end that are not counted: edges join and leave there.
const MARGIN: usize = 4;

/// What to run.
#[derive(Clone, Debug)]
pub struct Load {
    /// The controller's program.
    pub controller: PathBuf,
    /// Number of edges.
    pub edges: usize,
    /// Flows that enter the network at each edge in an epoch.
    pub flows: usize,
    /// Length of an epoch in milliseconds.
    pub epoch_ms: u64,
    /// How long the edges send, in seconds.
    pub seconds: u64,
    /// Whether edges and controller speak TLS, by certificates of an authority of their own.
    pub tls: bool,
    /// Who else connects to the controller, once the edges have.
    pub crowd: Crowd,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Number of edges.
    pub edges: usize,
    /// Length of an epoch in milliseconds.
    pub epoch_ms: u64,
    /// Epochs that were reported, those at either end left out.
    pub epochs: usize,
    /// Those of them that were complete, with every victim flow found.
    pub complete: usize,
    /// Milliseconds from the last egress side's receipt to the plan: median and highest.
    pub response_ms: (f64, f64),
    /// Milliseconds from the epoch's end to its report: median and highest.
    pub published_ms: (f64, f64),
    /// The median of the same over the last quarter of the epochs: large where work piled up.
    pub lag_ms: f64,
    /// CPU time of the controller for each edge and epoch, in microseconds.
    pub cpu_us: f64,
    /// The most resident memory that the controller had, in bytes.
    pub resident_bytes: u64,
    /// Connections that the crowd opened.
    pub crowd_connects: u64,
    /// Bytes that an edge sends in an epoch.
    pub bytes: usize,
    /// Why the first epoch that was not complete was not.
    pub problem: Option<String>,
}

impl Outcome {
    /// Whether the controller kept up: all epochs complete, and in the end still reported before
    /// the epoch after the next was over, a seal being due just before that begins.
    pub fn is_sustained(&self) -> bool {
        let due_ms = 2.0 * self.epoch_ms as f64;
        self.epochs > 0 && self.complete == self.epochs && self.lag_ms < due_ms
    }
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Runs a controller under load.
///
/// # Errors
/// When the controller can't be run, or an edge is refused or cut off.
pub fn run(load: &Load) -> Result<Outcome> {
    let network = Network::measure(load.edges, load.flows, Keys::Hosts);
    let frames: Vec<[Vec<u8>; 3]> = (0..load.edges).map(|edge| network.frames(edge, 0)).collect();
    let bytes = frames.iter().flatten().map(Vec::len).sum::<usize>() / load.edges;
    let folder = std::env::temp_dir().join(format!("calumma-load-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let done = drive(load, &network, frames, &folder);
    let reports = done.and_then(|used| Ok((used, read_reports(&folder.join("epochs.jsonl"))?)));
    fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    let (used, reports) = reports?;
    ensure!(reports.len() > 2 * MARGIN, "only {} epochs were reported", reports.len());

    let reports = &reports[MARGIN..reports.len() - MARGIN];
    let found = |report: &&EpochReport| report.complete && report.loss.len() == network.victims;
    let lacking = reports.iter().find(|report| !found(report));
    let times = |reports: &[EpochReport], of: fn(&Timing) -> f64| {
        let mut times: Vec<f64> =
            reports.iter().filter_map(|report| report.timing.as_ref().map(of)).collect();
        times.sort_by(f64::total_cmp);
        let at = |place: usize| times.get(place).copied().unwrap_or(f64::NAN);
        (at(times.len() / 2), at(times.len().saturating_sub(1)))
    };
    Ok(Outcome {
        edges: load.edges,
        epoch_ms: load.epoch_ms,
        epochs: reports.len(),
        complete: reports.iter().filter(found).count(),
        response_ms: times(reports, |timing| timing.planned_ms - timing.egress_ms),
        published_ms: times(reports, |timing| timing.published_ms),
        lag_ms: times(&reports[reports.len() * 3 / 4..], |timing| timing.published_ms).0,
        cpu_us: used.cpu_us
            / (load.edges * load.seconds as usize * 1000 / load.epoch_ms as usize) as f64,
        resident_bytes: used.resident_bytes,
        crowd_connects: used.crowd_connects,
        bytes,
        problem: lacking.map(|report| {
            format!("epoch {}: {}", report.epoch, report.incomplete_because.join("; "))
        }),
    })
}

/// What a controller took while edges sent, and who came.
struct Used {
    cpu_us: f64,
    resident_bytes: u64,
    crowd_connects: u64,
}

/// A controller of its own, ended when dropped.
struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Controller {
    /// Starts one, and gives the address that it listens on.
    fn start(load: &Load, network: &Network, folder: &Path) -> Result<(Self, String)> {
        let config = folder.join("controller.toml");
        let names: Vec<String> = (0..load.edges).map(|edge| format!("\"e{edge}\"")).collect();
        let key: String = HASH_KEY.iter().map(|byte| format!("{byte:02x}")).collect();
        let tls = if load.tls { certify(load, folder)? } else { String::new() };
        let text = format!(
            "edges = [{}]\nhash_key = \"{key}\"\ngrace_ms = 2000\n[epoch]\nlength_ms = {}\n\
             [attention]\nt_h = {}\n{tls}",
            names.join(", "),
            load.epoch_ms,
            network.attention.t_h
        );
        fs::write(&config, text).with_context(|| format!("writing {}", config.display()))?;
        let mut child = Command::new(&load.controller)
            .args(["--listen", "127.0.0.1:0", "--quiet", "--config"])
            .arg(&config)
            .arg("--out")
            .arg(folder.join("epochs.jsonl"))
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("running {}", load.controller.display()))?;
        let stdout = child.stdout.take();
        let controller = Self(child);
        let mut line = String::new();
        BufReader::new(stdout.context("the controller's output")?).read_line(&mut line)?;
        let ready: serde_json::Value =
            serde_json::from_str(&line).context("the controller's first line")?;
        let listen = ready["listen"].as_str().context("where the controller listens")?;
        Ok((controller, listen.to_owned()))
    }

    /// CPU time that it has used, in microseconds.
    fn cpu_us(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u64 =
            fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        // The kernel counts in hundredths of a second, whatever its own clock.
        Ok(ticks as f64 * 10_000.0)
    }

    /// The most resident memory that it has had, in bytes.
    fn resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = most.and_then(|rest| rest.split_whitespace().next()).context("VmHWM")?;
        Ok(kib.parse::<u64>().context("VmHWM")? << 10)
    }

    /// Lets it report what is pending, and end.
    fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "the controller ended with {status}");
        Ok(())
    }
}

/// Makes an authority and everybody's certificate; gives the controller's section.
fn certify(load: &Load, folder: &Path) -> Result<String> {
    let mut authority = Authority::init(folder, &[], 1)?;
    (0..load.edges).try_for_each(|edge| authority.issue(&format!("e{edge}"), 1))?;
    let TlsFiles { ca, certificate, key, .. } = TlsFiles::of(folder, CONTROLLER);
    Ok(format!("[tls]\nca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\n"))
}

/// Runs controller and edges, and gives what the controller used while they sent.
fn drive(load: &Load, network: &Network, frames: Vec<[Vec<u8>; 3]>, folder: &Path) -> Result<Used> {
    let (controller, listen) = Controller::start(load, network, folder)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let used = runtime.block_on(async {
        let (go, ready) = tokio::sync::watch::channel(None);
        let edges: Vec<_> = frames
            .into_iter()
            .enumerate()
            .map(|(edge, frames)| {
                let (listen, ready) = (listen.clone(), ready.clone());
                let tls = load.tls.then(|| TlsFiles::of(folder, &format!("e{edge}")));
                tokio::spawn(async move {
                    Edge::join(edge, &listen, tls).await?.send(frames, ready).await
                })
            })
            .collect();
        // Time to connect and to have the clocks measured.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (comes, to) = (load.crowd, listen.clone());
        let crowd = tokio::task::spawn_blocking(move || comes.gather(&to)).await??;
        let before = controller.cpu_us()?;
        let length_ns = load.epoch_ms * 1_000_000;
        let first = unix_ns() / length_ns + 2;
        let epochs = load.seconds * 1000 / load.epoch_ms;
        go.send_replace(Some(first..first + epochs));
        for edge in edges {
            edge.await.context("an edge's task")??;
        }
        anyhow::Ok(Used {
            cpu_us: controller.cpu_us()? - before,
            resident_bytes: controller.resident_bytes()?,
            crowd_connects: crowd.connects(),
        })
    })?;
    controller.stop()?;
    Ok(used)
}

/// The epochs to send, once all edges have had time to join.
type Ready = tokio::sync::watch::Receiver<Option<std::ops::Range<u64>>>;

/// An edge's end of the connection.
struct Edge {
    stream: Box<dyn Stream>,
    reader: FrameReader,
    clock: Arc<EpochClock>,
}

/// A connection by TLS or without.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Edge {
    async fn join(edge: usize, listen: &str, tls: Option<TlsFiles>) -> Result<Self> {
        let stream = TcpStream::connect(listen).await.context("connecting")?;
        stream.set_nodelay(true)?;
        let mut stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(files) => {
                let connector = TlsConnector::from(tls::node_client(&files)?);
                let shaken = connector.connect(tls::controller(), stream).await;
                Box::new(shaken.context("the handshake")?)
            }
        };
        stream.write_all(&hello(&format!("e{edge}"))).await?;
        stream.flush().await?;
        let mut reader = FrameReader::new();
        let message = loop {
            if let Some(message) = reader.next(None)? {
                break message;
            }
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes).await? {
                0 => bail!("edge e{edge}: the controller closed the connection"),
                read => reader.push(&bytes[..read]),
            }
        };
        match message {
            Message::Welcome { epoch_length_ns, guards, .. } => {
                let clock = Arc::new(EpochClock::new(epoch_length_ns, guards)?);
                Ok(Self { stream, reader, clock })
            }
            other => bail!("edge e{edge}: {other:?} instead of a welcome"),
        }
    }

    /// Sends all epochs, each frame when it is due.
    async fn send(self, frames: [Vec<u8>; 3], mut ready: Ready) -> Result<()> {
        let Self { stream, mut reader, clock } = self;
        let (mut from, mut to) = tokio::io::split(stream);
        let (answers, mut answer) = tokio::sync::mpsc::unbounded_channel();
        let listening = tokio::spawn(async move {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = from.read(&mut bytes).await {
                let received_ns = unix_ns();
                reader.push(&bytes[..read]);
                while let Some(message) = reader.next(None)? {
                    if let Message::Probe { sent_ns } = message {
                        let answered_ns = unix_ns();
                        let echo = Message::Echo { sent_ns, received_ns, answered_ns };
                        let _ = answers.send(echo);
                    }
                }
            }
            anyhow::Ok(())
        });
        let [mut ingress, mut egress, mut seal] = frames;
        // What is due: when, of which epoch, which frame.
        let mut schedule: Option<(u64, u64, Side)> = None;
        loop {
            let wait_ns = match &schedule {
                None => u64::MAX,
                Some((due_ns, ..)) => due_ns.saturating_sub(unix_ns()),
            };
            tokio::select! {
                biased;
                Some(echo) = answer.recv() => {
                    let mut frame = Vec::new();
                    echo.encode(&mut frame);
                    to.write_all(&frame).await?;
                    to.flush().await?;
                    continue;
                }
                changed = ready.changed(), if schedule.is_none() => {
                    changed.context("the load ended before it began")?;
                    let first = ready.borrow().as_ref().map_or(0, |epochs| epochs.start);
                    schedule = Some((clock.start_of(first + 1), first, Side::Ingress));
                    continue;
                }
                () = tokio::time::sleep(Duration::from_nanos(wait_ns.min(1 << 40))) => {}
            }
            let Some((_, epoch, side)) = schedule else { continue };
            let frame = match side {
                Side::Ingress => &mut ingress,
                Side::Egress => &mut egress,
                Side::Seal => &mut seal,
            };
            frame[EPOCH_AT..EPOCH_AT + 8].copy_from_slice(&epoch.to_le_bytes());
            to.write_all(frame).await.context("the controller closed the connection")?;
            to.flush().await?;
            let next = match side {
                Side::Ingress => (clock.take_time(epoch), epoch, Side::Egress),
                Side::Egress => (clock.arm_time(epoch + 2), epoch, Side::Seal),
                Side::Seal => (clock.start_of(epoch + 2), epoch + 1, Side::Ingress),
            };
            if ready.borrow().as_ref().is_none_or(|epochs| next.1 >= epochs.end) {
                break;
            }
            schedule = Some(next);
        }
        // The controller has read all when it closes its side.
        to.shutdown().await?;
        listening.await.context("listening")?
    }
}

/// The frames of an epoch.
#[derive(Clone, Copy)]
enum Side {
    Ingress,
    Egress,
    Seal,
}

fn read_reports(file: &Path) -> Result<Vec<EpochReport>> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    text.lines().map(|line| serde_json::from_str(line).context("a report")).collect()
}
