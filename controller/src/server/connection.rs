//! One node's connection: hello, welcome, then frames in and messages out.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use calumma_chamelemon::frames;
use calumma_ports::{Bounds, Guest};
use calumma_trust::tls::NodeServer;
use calumma_wire::{FrameReader, Hello, MAX_FRAME_BYTES, Message, VERSION, v5};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::gate::Gate;
use super::hub::{Admission, Entrance, Hub, Introduction, Lanes};
use super::lane::{Inbound, Inlet, NodeFrame};
use super::stream::{self, Stream, Trusted};
use super::{steady_ns, unix_ns};
use crate::analyse::{DecodedIngress, Decoder};
use crate::chamelemon::EdgeFrame;
use crate::clocks::Exchange;
use crate::collect::{Receipt, sides_of};

/// Time that a new connection has to introduce itself.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a node that waits for the choice of a carrier asks to be let in.
const ENTRANCE_STEP: Duration = Duration::from_millis(50);

/// Bytes that a connection may send before it is known.
const HELLO_BYTES: usize = 4096;

/// Bytes that are read from a connection at a time before its node is known, and afterwards. Beside
/// these, an unknown one has [`HELLO_BYTES`] and a task: 20 KiB together.
const FIRST_READ_BYTES: usize = 4 << 10;
const READ_BYTES: usize = 64 << 10;

/// Time that a node has to take a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// A node that sends nothing for this long, and for [`SILENT_EPOCHS`], counts as gone, so that it
/// can come back from elsewhere.
const SILENCE: Duration = Duration::from_secs(5);
const SILENT_EPOCHS: u32 = 20;

/// Time between two probes of a node's clock, at first and once [`FIRST_PROBES`] have been
/// answered.
const PROBE_SOON: Duration = Duration::from_millis(20);
const PROBE_LATER: Duration = Duration::from_millis(250);
const FIRST_PROBES: u32 = 8;

/// Probes of which an answer still counts: those of ten seconds at first.
const PROBES_OUT: usize = 512;

/// Connections whose node is not known yet: as many as all nodes make that come back at once, from
/// one address where they are behind the same, and some more.
pub(super) fn bounds(nodes: usize) -> Bounds {
    Bounds { most: 4 * nodes + 64, most_of_address: nodes + 16 }
}

/// Packets that a node may say it has recorded in an epoch: those of an hour at 70 billion a
/// second. Sums over all nodes can't overflow then.
const MOST_PACKETS: u64 = 1 << 48;

/// Frames that a node may have refused before it has to wait, and how long: what no system wants
/// takes a few percent of a CPU at most. A node that comes back to a controller that has reported
/// all it holds sends some thousands.
const REFUSED_AT_ONCE: u32 = 256;
const REFUSED_WAIT: Duration = Duration::from_millis(10);

/// Accepts connections until the controller stops.
pub(super) async fn accept(
    listener: TcpListener,
    hub: Arc<Hub>,
    tls: Option<watch::Receiver<NodeServer>>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let (stream, address) = tokio::select! {
            accepted = calumma_ports::accept(&listener) => accepted,
            _ = stopped.wait_for(|&stopped| stopped) => return,
        };
        let Some(guest) = hub.strangers().enter(address.ip()) else { continue };
        let (hub, tls, mut stopped) = (hub.clone(), tls.clone(), stopped.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = serve(stream, address, &hub, tls, guest) => {}
                _ = stopped.wait_for(|&stopped| stopped) => {}
            }
        });
    }
}

async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    hub: &Hub,
    tls: Option<watch::Receiver<NodeServer>>,
    mut guest: Guest,
) {
    let admitted = tokio::select! {
        admitted = receive_hello(stream, address, hub, tls) => admitted,
        () = guest.displaced() => return,
    };
    // A node that was let in takes no stranger's place.
    drop(guest);
    if let Some(admitted) = admitted {
        hub.strangers().know(address.ip());
        // Larger than a stranger's whole task, and not to be part of it.
        Box::pin(serve_node(admitted, address, hub)).await;
    }
}

/// A node that was let in.
struct Admitted {
    link: Link,
    /// Its certificate, where there is TLS.
    peer: Option<Trusted>,
    name: String,
    admission: Admission,
}

/// Receives a node's hello, after the handshake where there is TLS, and lets it in, or refuses it.
async fn receive_hello(
    stream: TcpStream,
    address: SocketAddr,
    hub: &Hub,
    tls: Option<watch::Receiver<NodeServer>>,
) -> Option<Admitted> {
    let end = Instant::now() + HELLO_TIMEOUT;
    // A frame is one write, and the next may be long in coming.
    let _ = stream.set_nodelay(true);
    let (stream, peer) = match timeout_at(end, Stream::begin(stream, tls)).await {
        Ok(Ok(begun)) => begun,
        Ok(Err(problem)) => {
            warn!(%address, "refused: no TLS: {problem}");
            return None;
        }
        Err(_) => {
            warn!(%address, "refused: no TLS within {HELLO_TIMEOUT:?}");
            return None;
        }
    };
    let reader = FrameReader::new().with_limit(HELLO_BYTES);
    let (buffer, received_at) = (vec![0; FIRST_READ_BYTES], Instant::now());
    let mut link = Link { stream, reader, version: VERSION, buffer, received_at };
    let received = timeout_at(end, link.receive()).await;
    let hello = match received {
        Ok(Ok(Some(Message::Hello(hello)))) => match refusal(link.version, hub) {
            Some(reason) => Err(reason),
            None => introduction(link.version, *hello, address),
        },
        Ok(Ok(Some(other))) => Err(format!("a {} frame came before hello", other.name())),
        Ok(Ok(None)) => return None,
        Ok(Err(ended)) => Err(ended.problem()),
        Err(_) => Err(format!("no hello within {HELLO_TIMEOUT:?}")),
    };
    let hello = hello.and_then(|hello| hashes_alike(link.version, hub).map(|()| hello));
    let hello = hello.and_then(|hello| match &peer {
        Some(shown) if !shown.is(&hello.0) => {
            Err(format!("the hello says {:?}, and the certificate is not of that name", hello.0))
        }
        _ => Ok(hello),
    });
    let (name, introduction) = match hello {
        Ok(hello) => hello,
        Err(reason) => {
            warn!(%address, "refused: {reason}");
            link.refuse(reason).await;
            return None;
        }
    };
    let kind = introduction.kind.name();
    let program = introduction.program.clone();
    let admission = match enter(&mut link, hub, &name, introduction).await {
        Ok(admission) => admission?,
        Err(reason) => {
            warn!(node = name, %address, "refused: {reason}");
            link.refuse(reason).await;
            return None;
        }
    };
    info!(node = name, %address, kind, program, "connected");
    Some(Admitted { link, peer, name, admission })
}

/// Lets a node in, as soon as it is known by which carrier it is to mark packets; `None` where it
/// has gone before.
async fn enter(
    link: &mut Link,
    hub: &Hub,
    name: &str,
    introduction: Introduction,
) -> Result<Option<Admission>, String> {
    let mut waits = false;
    loop {
        // While the disk takes another hash key, nobody is let in, and others are served meanwhile.
        let admit = || hub.admit(name, introduction.clone(), unix_ns());
        match tokio::task::block_in_place(admit)? {
            Entrance::Admitted(admission) => return Ok(Some(admission)),
            Entrance::Waits(missing) if !waits => {
                let missing = missing.join(", ");
                info!(node = name, missing, "waits: a carrier is chosen when these have come");
                waits = true;
            }
            Entrance::Waits(_) => {}
        }
        match timeout(ENTRANCE_STEP, link.receive()).await {
            // Nothing, as it should be.
            Err(_) => {}
            Ok(Ok(Some(other))) => return Err(format!("a {} frame before welcome", other.name())),
            Ok(_) => return Ok(None),
        }
    }
}

/// Talks with a node that was let in until it goes.
async fn serve_node(admitted: Admitted, address: SocketAddr, hub: &Hub) {
    let Admitted { mut link, peer, name, admission } = admitted;
    let Admission { node, connection, messages, probes } = admission;
    let mut dismissal = Dismissal { hub, node, connection, has_closed: false, problem: None };
    hub.paths_connected(node, probes);
    link.buffer.resize(READ_BYTES, 0);
    match converse(&mut link, hub, (node, connection), messages, peer).await {
        Ok(()) => {
            info!(node = name, %address, "disconnected");
            dismissal.has_closed = true;
        }
        Err(Ended::Closed(problem)) => {
            warn!(node = name, %address, "disconnected: {problem}");
            (dismissal.has_closed, dismissal.problem) = (true, Some(problem));
        }
        Err(Ended::Broken(problem)) => {
            warn!(node = name, %address, "disconnected: {problem}");
            dismissal.problem = Some(problem);
        }
        Err(Ended::Protocol(problem)) => {
            warn!(node = name, %address, "connection closed, with the reason sent: {problem}");
            dismissal.problem = Some(problem.clone());
            // Before the node is sent the reason: it may come back at once, and closing takes its
            // time.
            drop(dismissal);
            link.refuse(problem).await;
        }
    }
}

/// Whether a node that speaks this version hashes as the deployment does.
fn hashes_alike(version: u8, hub: &Hub) -> Result<(), String> {
    if version == v5::VERSION && !hub.keys().newest().key.has_public_generators() {
        return Err(format!(
            "switches that speak version {version} of the protocol hash by public CRCs, and this \
             deployment does not: upgrade the switch, or set hash_generators = \"public\" at the \
             controller until all switches are upgraded"
        ));
    }
    Ok(())
}

/// Why a node that speaks a version of the protocol can't be served.
fn refusal(version: u8, hub: &Hub) -> Option<String> {
    // It would measure everybody's packets, and others only some: what enters there and leaves
    // elsewhere would seem lost.
    let measures_all = version == v5::VERSION && !hub.measures_all();
    measures_all.then(|| {
        format!(
            "[domain] prefixes are set, which version {version} of the protocol has no words for: \
             update the switch, or take them out"
        )
    })
}

/// Who a node is, by its hello.
fn introduction(
    version: u8,
    hello: Hello,
    address: SocketAddr,
) -> Result<(String, Introduction), String> {
    let Hello { node, role, kind, program, marking, systems: offers, holding: held } = hello;
    let holding = Introduction::holding(&held)?;
    let of = Introduction { version, role, kind, program, offers, holding, held, marking, address };
    Ok((node, of))
}

/// Frees the node's name when its connection ends, however that comes about.
struct Dismissal<'a> {
    hub: &'a Hub,
    node: usize,
    connection: u64,
    /// Whether the node's own end closed it.
    has_closed: bool,
    problem: Option<String>,
}

impl Drop for Dismissal<'_> {
    fn drop(&mut self) {
        // First, since the node may connect anew as soon as it is dismissed.
        self.hub.paths_disconnected(self.node);
        let closed = self.has_closed;
        self.hub.dismiss(self.node, self.connection, (closed, self.problem.take()));
    }
}

/// Why a conversation ended.
enum Ended {
    /// The node's own end closed the connection, as the end of its program does.
    Closed(String),
    /// The connection did.
    Broken(String),
    /// The controller ends it: the node sent what it should not, or is to come again.
    Protocol(String),
}

impl Ended {
    fn problem(self) -> String {
        let (Self::Closed(problem) | Self::Broken(problem) | Self::Protocol(problem)) = self;
        problem
    }
}

/// Talks with a node until it goes.
async fn converse(
    link: &mut Link,
    hub: &Hub,
    (node, connection): (usize, u64),
    mut messages: mpsc::Receiver<Message>,
    peer: Option<Trusted>,
) -> Result<(), Ended> {
    let mut inbound = Inbounds {
        hub,
        node,
        connection,
        lanes: hub.watch_lanes(),
        gate: Gate::default(),
        refused: 0,
    };
    link.reader = std::mem::take(&mut link.reader).with_limit(MAX_FRAME_BYTES);
    let epochs = Duration::from_nanos(hub.clock().length_ns()) * SILENT_EPOCHS;
    let silence = SILENCE.max(epochs);
    let mut answered = 0;
    let mut probes = VecDeque::new();
    let probe = tokio::time::sleep(Duration::ZERO);
    let distrust = stream::distrust(peer);
    tokio::pin!(probe, distrust);
    loop {
        let silent_at = link.received_at + silence;
        let message = tokio::select! {
            Some(message) = messages.recv() => {
                // A system could not read what the node sent.
                if let Message::Refused { reason } = message {
                    return Err(Ended::Protocol(reason));
                }
                link.send(&message).await?;
                continue;
            }
            problem = &mut distrust => return Err(Ended::Broken(problem)),
            () = &mut probe => {
                let sent_ns = steady_ns();
                if probes.len() == PROBES_OUT {
                    probes.pop_front();
                }
                probes.push_back(sent_ns);
                link.send(&Message::Probe { sent_ns }).await?;
                let wait = if answered < FIRST_PROBES { PROBE_SOON } else { PROBE_LATER };
                probe.as_mut().reset(Instant::now() + wait);
                continue;
            }
            received = timeout_at(silent_at, link.receive()) => match received {
                Err(_) if link.received_at + silence > Instant::now() => continue,
                Err(_) => return Err(Ended::Broken(format!("nothing received for {silence:?}"))),
                Ok(Err(ended)) => return Err(ended),
                Ok(Ok(None)) => return Ok(()),
                Ok(Ok(Some(message))) => message,
            },
        };
        let received_at_ns = unix_ns();
        let packets = match &message {
            Message::Side(side) => side.packets,
            Message::Sealed { late_packets, .. } => *late_packets,
            _ => 0,
        };
        if packets > MOST_PACKETS {
            return Err(Ended::Protocol(format!("{packets} packets in one epoch")));
        }
        match message {
            Message::Side(side) => {
                inbound.take(NodeFrame::Side(side), received_at_ns).await?;
            }
            Message::Sealed { system, epoch, late_packets, body } => {
                let frame = NodeFrame::Sealed { system, epoch, late_packets, body };
                inbound.take(frame, received_at_ns).await?;
            }
            Message::Notice { system, epoch, body } => {
                let frame = NodeFrame::Notice { system, epoch, body };
                inbound.take(frame, received_at_ns).await?;
            }
            Message::Echo { sent_ns, received_ns, answered_ns } => {
                // An answer to what was not asked, or twice, says nothing.
                let Some(at) = probes.iter().position(|&probe| probe == sent_ns) else { continue };
                probes.drain(..=at);
                answered += 1;
                let returned_ns = steady_ns();
                hub.exchanged(node, Exchange { sent_ns, received_ns, answered_ns, returned_ns });
            }
            Message::Applied { system: frames::ID, effective_epoch, outcome } => {
                hub.applied(node, effective_epoch, outcome);
            }
            Message::Applied { system, effective_epoch, outcome } => {
                hub.plan_answered(node, system, effective_epoch, &outcome);
            }
            Message::PathsSeen(seen) => hub.paths_seen(node, *seen),
            other => {
                let problem = format!("a {} frame, which no controller expects", other.name());
                return Err(Ended::Protocol(problem));
            }
        }
    }
}

/// A node's frames on their way to the systems.
struct Inbounds<'a> {
    hub: &'a Hub,
    node: usize,
    connection: u64,
    lanes: watch::Receiver<Lanes>,
    gate: Gate,
    /// Frames that did not pass the gate.
    refused: u32,
}

impl Inbounds<'_> {
    /// Gives a frame to its system. Of a system that is not run here nothing is kept but the
    /// node's totals.
    async fn take(&mut self, mut frame: NodeFrame, received_ns: u64) -> Result<(), Ended> {
        let Self { hub, node, connection, lanes, gate, .. } = self;
        let (hub, node, connection) = (*hub, *node, *connection);
        if let NodeFrame::Side(side) = &mut frame {
            hub.count(node, side);
        }
        let (system, epoch) = (frame.system(), frame.epoch());
        let lane = lanes.borrow().iter().find(|lane| lane.id() == system).cloned();
        let Some(lane) = lane else { return Ok(()) };
        let (name, role) = (lane.system.name(), hub.node(node).role);
        let Some((version, alone)) = hub.runs(node, &lane) else {
            let problem = format!("a frame of {name}, which this {} does not run", role.name());
            return Err(Ended::Protocol(problem));
        };
        if let NodeFrame::Side(side) = &frame
            && !sides_of(role).contains(&side.side)
        {
            let (side, role) = (side.side.name(), role.name());
            let problem = format!("a side of {name} ({side}) that no {role} has");
            return Err(Ended::Protocol(problem));
        }
        let side = match &frame {
            NodeFrame::Side(side) => Some(side.side),
            NodeFrame::Sealed { .. } => None,
            // It is no part of what is collected of the epoch, nor late for it.
            NodeFrame::Notice { .. } => {
                if let Inlet::Analysis(queue, _) = &lane.inlet {
                    let inbound = Inbound { node, connection, version, frame, received_ns };
                    lane.put(queue, inbound, alone).await;
                }
                return Ok(());
            }
        };
        // Late as well from before it was switched on, or after it was switched off.
        let known = match lane.covers(epoch) {
            true => gate.judge(&lane, epoch, side, hub.clock().epoch_at(received_ns)),
            false => Some(Receipt::Late),
        };
        if let Some(receipt) = known {
            hub.note_frame(node, epoch, receipt);
            self.refused += 1;
            if self.refused.is_multiple_of(REFUSED_AT_ONCE) {
                tokio::time::sleep(REFUSED_WAIT).await;
            }
            return Ok(());
        }
        match &lane.inlet {
            Inlet::Analysis(queue, _) => {
                let inbound = Inbound { node, connection, version, frame, received_ns };
                lane.put(queue, inbound, alone).await;
            }
            Inlet::ChameleMon(queue) => {
                let message = frames::Message::read(frame.into(), Some(&hub.config().layout));
                let message = message.map_err(|error| Ended::Protocol(error.to_string()))?;
                if let Some(message) = message {
                    let Some((message, decoded)) = decode(message, &hub.chamelemon.decoder).await
                    else {
                        return Ok(());
                    };
                    let frame = EdgeFrame { edge: node, message, decoded, received_ns };
                    lane.put(queue, frame, alone).await;
                }
            }
        }
        Ok(())
    }
}

/// Decodes an ingress side, long before the epoch's last side comes in; `None` where the controller
/// stops.
async fn decode(
    message: frames::Message,
    decoder: &Decoder,
) -> Option<(frames::Message, Option<Box<DecodedIngress>>)> {
    let frames::Message::Ingress(side) = message else { return Some((message, None)) };
    let decoder = decoder.clone();
    let decoding = tokio::task::spawn_blocking(move || {
        let decoded = Box::new(decoder.ingress(&side));
        (frames::Message::Ingress(side), Some(decoded))
    });
    match decoding.await {
        Ok(decoded) => Some(decoded),
        Err(problem) if problem.is_cancelled() => None,
        Err(problem) => std::panic::resume_unwind(problem.into_panic()),
    }
}

/// A socket and the frames that come out of it.
struct Link {
    stream: Stream,
    reader: FrameReader,
    /// The version of the protocol that the node speaks, and is answered in.
    version: u8,
    buffer: Vec<u8>,
    /// When bytes were received last.
    received_at: Instant,
}

impl Link {
    /// The next message; `None` where the peer has closed the connection. Can be dropped at any
    /// time without losing bytes.
    async fn receive(&mut self) -> Result<Option<Message>, Ended> {
        loop {
            let next = self.reader.next_message();
            if let Some(message) = next.map_err(|error| Ended::Protocol(error.to_string()))? {
                self.version = self.reader.version();
                return Ok(Some(message));
            }
            let read = match self.stream.read(&mut self.buffer).await {
                // A node that was killed says no farewell in TLS: a frame that was cut off shows by
                // its length.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                read => read,
            };
            match read {
                Ok(0) if self.reader.is_within_frame() => {
                    return Err(Ended::Closed("the connection was closed within a frame".into()));
                }
                Ok(0) => return Ok(None),
                Ok(read) => {
                    self.received_at = Instant::now();
                    self.reader.push(&self.buffer[..read]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Ended::Broken(error.to_string())),
            }
        }
    }

    async fn send(&mut self, message: &Message) -> Result<(), Ended> {
        let mut frame = Vec::new();
        if !message.encode_as(self.version, &mut frame) {
            // What the node's version has no words for, it can do without.
            return Ok(());
        }
        match timeout(SEND_TIMEOUT, self.stream.put(&frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Ended::Broken(error.to_string())),
            Err(_) => Err(Ended::Broken(format!("it took no message within {SEND_TIMEOUT:?}"))),
        }
    }

    /// Says why and closes.
    async fn refuse(mut self, reason: String) {
        if self.send(&Message::Refused { reason }).await.is_ok() {
            // Unread bytes would make the kernel reset the connection, and the reason be lost.
            let drain = async {
                let _ = self.stream.shutdown().await;
                while matches!(self.stream.read(&mut self.buffer).await, Ok(read) if read > 0) {}
            };
            let _ = timeout(Duration::from_secs(1), drain).await;
        }
    }
}
