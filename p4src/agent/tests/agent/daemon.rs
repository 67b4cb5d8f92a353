//! The daemon on a modelled switch, by the real protocols: what it reports is what passed, epoch by
//! epoch, whatever flips, changes or gets lost meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use calumma_chamelemon::frames::{Egress, Ingress, Message};
use calumma_chamelemon::{Attention, EgressGroup, Hierarchy, IngressGroup, Layout, Partition};
use calumma_epoch::EpochClock;
use calumma_interface::{Cable, Plug};
use calumma_sketch::{Arithmetic, FlowKey, HashFamily, HashKey, Key};
use calumma_switch_host::unix_ns;
use calumma_switchd::collector::Way;
use calumma_wire::{Outcome, SwitchKind};

use crate::common::{Numbers, Packet, marked, packet};
use crate::rig::{
    Controller, Daemon, EPOCH_MS, KEY, LIMIT, Lossy, Model, attention, config, layout, packets,
};

/// What the daemon reported of one epoch.
#[derive(Default)]
struct Reported {
    ingress: Option<Box<Ingress>>,
    egress: Option<Box<Egress>>,
    sealed: Option<u64>,
}

/// Reports by epoch.
type Reports = BTreeMap<u64, Reported>;

/// Takes in a report; gives back what is none.
fn sort(reports: &mut Reports, message: Message) -> Option<Message> {
    match message {
        Message::Ingress(side) => {
            let reported = reports.entry(side.epoch).or_default();
            reported.ingress = Some(side);
        }
        Message::Egress(side) => {
            let reported = reports.entry(side.epoch).or_default();
            reported.egress = Some(side);
        }
        Message::Sealed { epoch, late_packets, .. } => {
            reports.entry(epoch).or_default().sealed = Some(late_packets);
        }
        other => return Some(other),
    }
    None
}

/// A packet that entered the network: its flow, and how it was marked.
pub(crate) struct Passed {
    pub(crate) key: FlowKey,
    bit: u64,
    hierarchy: Hierarchy,
}

/// Sends packets into the switch and reads the marks they leave with; sends them back but for those
/// that the network loses. Gives what the network still has.
pub(crate) fn pass(
    model: &mut Model,
    numbers: &mut Numbers,
    packets: usize,
    passed: &mut Vec<Passed>,
) {
    let sent: Vec<Packet> = (0..packets).map(|_| packet(numbers)).collect();
    for packet in &sent {
        model.host.send(&packet.bytes);
    }
    for packet in sent {
        let frame = Model::next(&mut model.fabric);
        let mark = frame[packet.ip + 1] >> 5;
        assert_eq!(frame, marked(&packet, mark), "in order, and changed in nothing else");
        let (bit, hierarchy) = (u64::from(mark >> 2), Hierarchy::from_bits(mark & 3));
        passed.push(Passed { key: packet.key, bit, hierarchy });
        // The network gives it back to the same switch.
        model.fabric.send(&frame);
        assert_eq!(Model::next(&mut model.host), marked(&packet, 0b101));
    }
}

/// The packets of each measured epoch: runs of one timestamp bit, the first of which is `first`'s,
/// or that of the epoch before where a busy machine has let the switch flip late.
pub(crate) fn by_epoch(passed: &[Passed], first: u64) -> BTreeMap<u64, &[Passed]> {
    let is_before = passed.first().is_some_and(|packet| packet.bit != first & 1);
    let runs = passed.chunk_by(|a, b| a.bit == b.bit);
    (first - u64::from(is_before)..).zip(runs).collect()
}

/// What is reported of an epoch equals what software makes of its packets, in both roles.
fn assert_equal(layout: &Layout, epoch: u64, reported: &Reported, passed: &[Passed]) {
    let family = HashFamily::new(&HashKey::from_bytes(KEY));
    let ingress = reported.ingress.as_ref().unwrap_or_else(|| panic!("ingress of {epoch}"));
    let egress = reported.egress.as_ref().unwrap_or_else(|| panic!("egress of {epoch}"));
    assert_eq!(ingress.attention, egress.attention, "epoch {epoch}");
    let mut entering = IngressGroup::new(layout, ingress.attention, epoch).unwrap();
    let mut leaving = EgressGroup::new(layout, ingress.attention).unwrap();
    for packet in passed {
        let hashes = family.hash(&packet.key);
        let hierarchy = entering.record(&packet.key, &hashes);
        assert_eq!(hierarchy, packet.hierarchy, "epoch {epoch}");
        assert!(leaving.record(&packet.key, &hashes, hierarchy));
    }
    assert_eq!(&ingress.classifier, entering.classifier(), "epoch {epoch}");
    let hh = ingress.attention.partition.hh_part();
    // Flows of the HH encoder go out decoded.
    let upstream = FlowKey::of(&ingress.upstream).unwrap();
    match &upstream.hh_flows {
        Some(flows) => {
            let decoded = entering.upstream().part(&hh).decode(&family);
            let in_order = |flows: &[(FlowKey, i64)]| {
                let mut flows = flows.to_vec();
                flows.sort_unstable();
                flows
            };
            assert_eq!(in_order(flows), in_order(decoded.flows()), "epoch {epoch}");
        }
        None => assert_eq!(&upstream.encoder, entering.upstream(), "epoch {epoch}"),
    }
    let downstream = FlowKey::of(&egress.downstream).unwrap();
    assert_eq!(downstream, leaving.downstream(), "epoch {epoch}");
    assert_eq!(ingress.packets_in, passed.len() as u64, "epoch {epoch}");
    assert_eq!(reported.sealed, Some(0), "epoch {epoch}: no packet is late");
    assert!(ingress.defects.is_none() && egress.defects.is_none(), "epoch {epoch}");
}

/// Waits for an epoch, and until the switch has flipped to it.
pub(crate) fn wait_for_epoch(clock: &EpochClock, epoch: u64) {
    while clock.epoch_at(unix_ns()) < epoch {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The flip takes a moment.
    std::thread::sleep(Duration::from_millis(60));
}

/// The first epoch of a session: that of the first report, once it is there.
fn first_epoch(controller: &mut Controller, reports: &mut Reports) -> u64 {
    let end = Instant::now() + LIMIT;
    while reports.values().all(|reported| reported.ingress.is_none()) {
        assert!(Instant::now() < end, "an epoch is reported");
        controller.next().and_then(|message| sort(reports, message));
    }
    *reports.first_key_value().unwrap().0
}

/// Traffic without pause over several epochs, a reconfiguration on the way.
fn traffic_is_counted_once(arithmetic: Arithmetic, epoch_ms: u64, way: impl FnOnce(Cable) -> Way) {
    let layout = layout(arithmetic);
    let program = crate::rig::program(&layout, 8);
    let mut model = Model::start(&program, None);
    let mut controller = Controller::new(&layout, epoch_ms);
    let clock = controller.clock;
    let way = way(model.cpu.take().unwrap());
    let _daemon = Daemon::start(config(model.address, controller.address()), way);
    let hello = controller.welcome();
    assert!(matches!(hello, Message::Hello { kind: SwitchKind::Tofino, .. }));

    // Begins in the middle of an idle epoch that is measured already.
    let mut reports = Reports::new();
    first_epoch(&mut controller, &mut reports);
    let first = clock.epoch_at(unix_ns()) + 1;
    wait_for_epoch(&clock, first);
    let (mut numbers, mut passed) = (Numbers(1), Vec::new());
    let changed = Attention {
        t_h: 12,
        t_l: 2,
        partition: Partition { hh: 240, hl: 150, ll: 122 },
        ..attention()
    };
    let change = Message::Reconfigure { effective_epoch: first + 2, attention: changed };
    controller.send(&change);
    let mut outcome = None;
    while clock.epoch_at(unix_ns()) < first + 4 {
        pass(&mut model, &mut numbers, 50, &mut passed);
        while let Some(message) = controller.next() {
            if let Some(Message::Applied { outcome: found, .. }) = sort(&mut reports, message) {
                outcome = Some(found);
            }
        }
    }
    assert_eq!(outcome, Some(Outcome::Accepted));

    // The last run of packets may be of an epoch that goes on without us.
    let epochs = by_epoch(&passed, first);
    let last = *epochs.last_key_value().unwrap().0;
    let end = Instant::now() + LIMIT;
    while reports.get(&last).is_none_or(|reported| reported.sealed.is_none()) {
        assert!(Instant::now() < end, "epoch {last} is reported");
        controller.next().and_then(|message| sort(&mut reports, message));
    }
    assert!(epochs.len() >= 4, "{} epochs", epochs.len());
    for (epoch, passed) in epochs {
        let reported = &reports[&epoch];
        assert_equal(&layout, epoch, reported, passed);
        let wanted = if epoch < first + 2 { attention() } else { changed };
        assert_eq!(reported.ingress.as_ref().unwrap().attention, wanted, "epoch {epoch}");
    }
}

#[test]
fn every_packet_is_counted_once_amid_flips_and_a_reconfiguration() {
    traffic_is_counted_once(Arithmetic::Prime, EPOCH_MS, packets);
}

#[test]
fn wrapping_arithmetic_is_collected_as_well() {
    traffic_is_counted_once(Arithmetic::Wrapping, EPOCH_MS, packets);
}

#[test]
fn registers_can_be_read_instead() {
    // Much longer epochs: every element is an entry of its own, and the machine may be busy.
    traffic_is_counted_once(Arithmetic::Prime, 5 * EPOCH_MS, |_| Way::Registers);
}

#[test]
fn lost_collection_packets_are_asked_for_again() {
    // Longer epochs: what is asked for again takes its time, the more so on a machine that is busy.
    traffic_is_counted_once(Arithmetic::Prime, 3 * EPOCH_MS, |cable| packets(Lossy::new(cable)));
}
