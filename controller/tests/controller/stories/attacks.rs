//! Peers that attack: each test has one do its worst, over real sockets, while an honest edge goes
//! on delivering, and wants that edge's reports in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use calumma_controller::api::EdgeStatus;
use tokio::net::TcpSocket;

use super::*;

/// Frames that a flooding edge writes at a time.
const FLOOD_FRAMES: usize = 1000;

/// An edge that was let in, and repeats frames as fast as the controller reads them until dropped.
struct Flood {
    stopped: Arc<AtomicBool>,
    writing: Option<JoinHandle<()>>,
}

impl Flood {
    fn begin(controller: &Controller, name: &str, frames: impl Fn(&Edge) -> Vec<u8>) -> Self {
        let edge = Edge::join(controller, name);
        let stopped = Arc::new(AtomicBool::new(false));
        let (bytes, until) = (frames(&edge), stopped.clone());
        let writing = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                edge.peer.send_bytes(&bytes);
            }
        });
        Self { stopped, writing: Some(writing) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _ = self.writing.take().map(JoinHandle::join);
    }
}

/// Lets `e9` measure epochs one after the other, and wants each reported with all it has measured
/// within `most`, beside edges that deliver nothing.
pub(crate) fn reports_go_on(
    controller: &Controller,
    e9: &mut Edge,
    position: usize,
    most: Duration,
) {
    for _ in 0..3 {
        let epoch = e9.next_epoch();
        let mut world: World = World::new(&["e9"], &e9.layout, &e9.hash_key, e9.attention, epoch);
        for n in 0..200 {
            world.send((0, 0), flow(n), 3, |_| false);
        }
        e9.deliver(&world, 0);
        let since = Instant::now();
        let report = controller.report(epoch);
        assert!(since.elapsed() < most, "{:?}", since.elapsed());
        assert_eq!(report.edges[position].packets_in, Some(600), "{:?}", report.missing_edges);
    }
}

/// Connects from one of this host's addresses other than the usual.
pub(crate) fn connect_from(controller: &Controller, address: [u8; 4], to: SocketAddr) -> TcpStream {
    let stream = controller.runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

/// Bytes of memory that this process has.
pub(crate) fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// The value of a metric that is shown with these labels.
pub(super) fn metric(controller: &Controller, sample: &str) -> f64 {
    let text = controller.get_text("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in:\n{text}")).parse().unwrap()
}

/// A seal takes 28 bytes and a microsecond: three edges can send more of them than are taken in.
#[test]
fn a_flood_of_seals_from_edges_that_were_let_in_stops_no_reports() {
    let controller = Controller::start_with(&["e1", "e2", "e3", "e9"], IMPATIENT);
    let mut e9 = Edge::join(&controller, "e9");
    let seals = |edge: &Edge| {
        let seal =
            Message::Sealed { epoch: edge.recent_epoch(), late_packets: 0, late: Vec::new() };
        encoded(&seal).repeat(FLOOD_FRAMES)
    };
    let floods = ["e1", "e2", "e3"].map(|name| Flood::begin(&controller, name, seals));
    reports_go_on(&controller, &mut e9, 3, Duration::from_secs(10));
    let status = controller.running.hub().edges()[0].clone();
    assert!(status.late_frames + status.duplicate_frames > FLOOD_FRAMES as u64, "{status:?}");
    drop(floods);
}

/// A side can be made as small as some hundred bytes, and takes milliseconds to decode.
#[test]
fn a_flood_of_sides_from_edges_that_were_let_in_stops_no_reports() {
    let controller = Controller::start_with(&["e1", "e2", "e3", "e9"], IMPATIENT);
    let mut e9 = Edge::join(&controller, "e9");
    let sides = |edge: &Edge| {
        let [ingress, ..] = frames(&edge.world(edge.recent_epoch()), 0);
        encoded(&ingress).repeat(FLOOD_FRAMES)
    };
    let floods = ["e1", "e2", "e3"].map(|name| Flood::begin(&controller, name, sides));
    reports_go_on(&controller, &mut e9, 3, Duration::from_secs(10));
    let status = controller.running.hub().edges()[0].clone();
    // Were each decoded, it would be some hundred a second.
    assert!(status.late_frames + status.duplicate_frames > 10_000, "{status:?}");
    drop(floods);
}

/// From an address that switches may come from as well: they are behind one router.
#[test]
fn ten_thousand_idle_connections_keep_no_edge_out() {
    const ATTACKER: [u8; 4] = [127, 0, 0, 2];
    let controller = Controller::start_with(&["e1", "e2", "e9"], IMPATIENT);
    let mut e9 = Edge::join(&controller, "e9");
    let (to, before) = (controller.running.listen(), resident_bytes());
    let idle: Vec<TcpStream> =
        (0..10_000).map(|_| connect_from(&controller, ATTACKER, to)).collect();
    reports_go_on(&controller, &mut e9, 2, Duration::from_secs(10));
    let _e1 = Edge::join(&controller, "e1");
    let mut e2 = connect_from(&controller, ATTACKER, to);
    e2.write_all(&encoded(&hello("e2"))).unwrap();
    let mut welcome = [0; 8];
    e2.read_exact(&mut welcome).expect("a welcome");
    assert!(controller.running.hub().edges().iter().all(|edge| edge.connected));

    // Three nodes: 16 more than these from one address, 64 more than four times these in all.
    let displaced = metric(
        &controller,
        r#"calumma_turned_away_connections_total{how="displaced",port="switches"}"#,
    );
    let open = metric(&controller, r#"calumma_open_connections{port="switches"}"#);
    assert!(open <= 19.0 && displaced >= 10_000.0 - 19.0, "{open} open, {displaced} displaced");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MiB", grown >> 20);
    drop(idle);
}

/// Names of counters that are never the same, from connection to connection.
#[test]
fn an_edge_that_makes_up_counters_takes_bounded_memory_and_leaves_nothing_behind() {
    let controller = Controller::start(IMPATIENT);
    let mut made_up = 0..;
    for _ in 0..3 {
        let mut e1 = match made_up.start {
            0 => Edge::join(&controller, "e1"),
            _ => Edge::rejoin(&controller, "e1"),
        };
        let epoch = e1.recent_epoch();
        for back in 0..8 {
            let world = e1.world(epoch - back);
            let [Message::Ingress(mut side), ..] = frames(&world, 0) else { panic!("a side") };
            let names = made_up.by_ref().take(calumma_wire::MAX_COUNTERS);
            side.counters = names.map(|n| (format!("{n:064}"), 1)).collect();
            e1.send(&Message::Ingress(side));
        }
        let since = Instant::now();
        let edge = || controller.running.hub().edges()[0].clone();
        let received = |edge: EdgeStatus| edge.frames + edge.late_frames + edge.duplicate_frames;
        while received(edge()) < made_up.start / 1024 {
            assert!(since.elapsed() < PATIENCE, "{:?}", edge().frames);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(edge().counters.len() <= 4 * calumma_wire::MAX_COUNTERS);
        let shown = controller.get_text("/metrics").matches("calumma_switch_total{").count();
        assert!(shown <= 64, "{shown} are shown");
    }
    drop(Edge::rejoin(&controller, "e1"));
    assert!(controller.running.hub().edges()[0].counters.is_empty(), "those of before");
}

/// What is added up, compared and shown of them.
#[test]
fn the_largest_numbers_there_are_stop_no_reports() {
    let controller = Controller::start_with(&["e1", "e2", "e9"], IMPATIENT);
    let mut e9 = Edge::join(&controller, "e9");
    let liars = ["e1", "e2"].map(|name| lie_about_clocks(&controller, name));
    let epoch = e9.recent_epoch();
    let most = 1 << 48;
    for mut stream in &liars {
        let [ingress, egress, _] = frames(&e9.world(epoch), 0);
        let (Message::Ingress(mut ingress), Message::Egress(mut egress)) = (ingress, egress) else {
            panic!("two sides")
        };
        (ingress.packets_in, ingress.defects.stall_ns) = (most, u64::MAX);
        (egress.packets_out, egress.defects.stall_ns) = (most, u64::MAX);
        ingress.counters = vec![("received.host".to_owned(), u64::MAX)];
        let sealed = Message::Sealed { epoch, late_packets: most, late: Vec::new() };
        for message in [Message::Ingress(ingress), Message::Egress(egress), sealed] {
            stream.write_all(&encoded(&message)).unwrap();
        }
    }
    let world: World = World::new(&["e9"], &e9.layout, &e9.hash_key, e9.attention, epoch);
    e9.deliver(&world, 0);
    let report = controller.report(epoch);
    assert_eq!(report.edges[0].packets_in, Some(most), "{report:?}");
    for path in ["/api/v1/epochs?view=summary", "/api/v1/victims", "/api/v1/edges"] {
        assert!(!controller.get(path).is_null(), "{path}");
    }
    assert!(controller.get_text("/metrics").contains("calumma_switch_total"));
    reports_go_on(&controller, &mut e9, 2, Duration::from_secs(10));

    // More than that is no report.
    drop(liars);
    let mut e1 = Edge::rejoin(&controller, "e1");
    e1.send(&Message::Sealed { epoch, late_packets: most + 1, late: Vec::new() });
    let Some(Message::Refused { reason }) = e1.receive() else { panic!("a refusal") };
    assert!(reason.contains("packets in one epoch"), "{reason}");
}

/// Joins as an edge that answers probes with times that no clock shows, and gives its stream.
fn lie_about_clocks(controller: &Controller, name: &str) -> TcpStream {
    let mut stream = TcpStream::connect(controller.running.listen()).unwrap();
    stream.write_all(&encoded(&hello(name))).unwrap();
    let (mut reader, mut bytes) = (calumma_wire::FrameReader::new(), [0; 4096]);
    let mut times = [(0, 0), (u64::MAX, u64::MAX), (u64::MAX, 0), (0, u64::MAX)].into_iter();
    loop {
        let read = stream.read(&mut bytes).unwrap();
        reader.push(&bytes[..read]);
        while let Some(message) = reader.next_message().unwrap() {
            let calumma_wire::Message::Probe { sent_ns } = message else { continue };
            let Some((received_ns, answered_ns)) = times.next() else { return stream };
            let echo = Message::Echo { sent_ns, received_ns, answered_ns };
            stream.write_all(&encoded(&echo)).unwrap();
        }
    }
}

#[test]
fn an_edge_that_is_first_and_misconfigured_keeps_nobody_out() {
    let controller = Controller::start_with(&["e1", "e2", "e3"], IMPATIENT);
    let hello_by = |name: &str, carrier: &str| {
        let Message::Hello { edge, kind, program, holding, .. } = hello(name) else { panic!() };
        let marking = Marking { carrier: carrier.to_owned(), ..Marking::default() };
        Message::Hello { edge, kind, program, holding, marking }
    };
    let mut wrong = Edge::introduce(&controller, hello_by("e1", "shim"));
    for _ in 0..3 {
        let reason = refused(&controller, &encoded(&hello_by("e2", "tos")));
        assert!(reason.contains("those of e1 by \"shim\""), "{reason}");
    }
    let reason = refused(&controller, &encoded(&hello_by("e3", "tos")));
    assert!(reason.contains("it may come again at once"), "{reason}");
    let Some(Message::Refused { reason }) = wrong.receive() else { panic!("a refusal") };
    assert!(reason.contains("most edges"), "{reason}");
    let _right = ["e2", "e3"].map(|name| Edge::introduce(&controller, hello_by(name, "tos")));
    let reason = refused(&controller, &encoded(&hello_by("e1", "shim")));
    assert!(reason.contains("by \"tos\""), "{reason}");
}

/// A byte now and then is not silence: who has not said hello is closed all the same, and an edge
/// that was let in holds up its own epochs alone.
#[test]
fn frames_that_come_byte_by_byte_hold_up_nobody() {
    const STRANGERS: usize = 16;
    let controller = Controller::start_with(&["e1", "e9"], IMPATIENT);
    let mut e9 = Edge::join(&controller, "e9");
    let e1 = Edge::join(&controller, "e1");
    let (to, before) = (controller.running.listen(), resident_bytes());
    // As much as a frame can be, and no more of it than its head.
    let seal = Message::Sealed { epoch: e1.recent_epoch(), late_packets: 0, late: Vec::new() };
    let mut head = encoded(&seal)[..8].to_vec();
    let most = calumma_wire::MAX_FRAME_BYTES as u32 - 64;
    head[..4].copy_from_slice(&most.to_le_bytes());
    e1.peer.send_bytes(&head);
    let stopped = Arc::new(AtomicBool::new(false));
    let until = stopped.clone();
    let slow = std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            e1.peer.send_bytes(&[0x5A]);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    // Longer than it is: it would be whole, and refused, before long.
    let mut long = encoded(&hello("e2"));
    long[..4].copy_from_slice(&4000_u32.to_le_bytes());
    let strangers: Vec<_> = (0..STRANGERS)
        .map(|_| {
            let mut stream = TcpStream::connect(to).unwrap();
            let long = long.clone();
            std::thread::spawn(move || {
                let since = Instant::now();
                // For longer than anybody may take for it.
                for byte in long.into_iter().cycle().take(200) {
                    if stream.write_all(&[byte]).is_err() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                since.elapsed()
            })
        })
        .collect();
    reports_go_on(&controller, &mut e9, 1, Duration::from_secs(10));
    for stranger in strangers {
        let held = stranger.join().unwrap();
        assert!(held < Duration::from_secs(10), "{held:?}");
    }
    reports_go_on(&controller, &mut e9, 1, Duration::from_secs(10));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{} MiB for frames that never came", grown >> 20);
    stopped.store(true, Ordering::Relaxed);
    slow.join().unwrap();
}
