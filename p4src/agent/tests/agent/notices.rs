//! Notices of packets that no sketch holds: what is in them, which are sent, and what the daemon
//! makes of them.

use std::collections::BTreeSet;

use calumma_chamelemon::frames::{Message, VERSION};
use calumma_chamelemon::{Attention, Partition};
use calumma_interface::{Cable, Plug};
use calumma_plane::{Hierarchy, Stray, Strays};
use calumma_sketch::{Arithmetic, FlowKey};
use calumma_switchd::collection::ETHER_TYPE;
use calumma_switchd::config::CarrierKind;
use calumma_switchd::notices::{BUDGET, FRONT, Inbox, Streams};
use calumma_tna::{Entry, MirrorSession};

use crate::common::{self, FABRIC, HOST, Numbers, Pair, marked, packet};
use crate::rig::{Controller, Daemon, EPOCH_MS, Model, config, layout, packets, program};

const CPU: u16 = 64;
const SESSION: u16 = 2;
const STREAMS: Streams =
    Streams { control: "Egress.strays.notices", count: 3, has_register: true, most: BUDGET };

/// Attention under which hierarchy 1 has no buckets.
fn attention() -> Attention {
    let partition = Partition { hh: 1024, hl: 3072, ll: 0 };
    Attention { t_l: 1, partition, ..common::attention() }
}

/// A switch whose notices leave by [`CPU`]; of each stream up to a number.
fn noticing(carrier: CarrierKind, up_to: [u32; 3]) -> Pair {
    let mut pair = Pair::with_marks(carrier, Arithmetic::Prime, attention());
    pair.begin(1001);
    let session = MirrorSession { port: CPU, max_length: FRONT };
    pair.switch.set_mirror(SESSION, Some(session));
    for (stream, up_to) in (0u8..).zip(up_to) {
        let entry = Entry::new("allow").exact("stream", stream);
        let entry = entry.arg("up_to", up_to).arg("by", SESSION);
        pair.switch.add_entry(&STREAMS.budgets(), &entry).unwrap();
    }
    pair
}

/// What leaves for the host, and what for the CPU.
fn sent(pair: &mut Pair, bytes: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut out = pair.switch.inject(FABRIC, bytes);
    let notice = out.iter().position(|&(port, _)| port == CPU).map(|at| out.remove(at).1);
    let [(HOST, left)] = &out[..] else { panic!("{out:?}") };
    (left.clone(), notice)
}

/// The numbers of the next notices.
fn numbers(pair: &Pair) -> Vec<u32> {
    pair.switch.read_register_lanes(&STREAMS.numbers()).unwrap()[0].to_vec()
}

#[test]
fn what_no_bucket_holds_leaves_as_ever_and_a_numbered_notice_says_whose_it_is() {
    let mut pair = noticing(CarrierKind::Tos, [1000; 3]);
    let mut quiet = Pair::new(Arithmetic::Prime, attention());
    quiet.begin(1001);
    let mut next = [0; 2];
    let mut drawn = Numbers(6);
    for _ in 0..2000 {
        let (packet, mark) = (packet(&mut drawn), drawn.below(8) as u8);
        let bytes = marked(&packet, mark);
        let (left, notice) = sent(&mut pair, &bytes);
        assert_eq!(quiet.switch.inject(FABRIC, &bytes), [(HOST, left)]);
        // Of timestamp bit 1 all are recorded but those of hierarchy 1; the epoch of bit 0 is not
        // open, and hierarchy 0 is encoded nowhere.
        let is_stray = mark & 3 != 0 && !matches!(mark, 0b110 | 0b111);
        assert_eq!(notice.is_some(), is_stray, "{mark:03b}");
        let Some(notice) = notice else { continue };
        let stream = mark >> 2;
        let mut wanted = packet.bytes[..12].to_vec();
        wanted.extend(ETHER_TYPE.to_be_bytes());
        wanted.extend([0x80, stream]);
        wanted.extend(u32::to_be_bytes(next[usize::from(stream)]));
        wanted.extend(&packet.key.as_bytes()[..13]);
        wanted.push(mark);
        assert_eq!(notice[..wanted.len()], wanted);
        assert!(notice.len() <= FRONT + 20, "{}", notice.len());
        next[usize::from(stream)] += 1;
    }
    assert!(next.iter().all(|&sent| sent > 200), "{next:?}");
    assert_eq!(numbers(&pair), [next[0], next[1], 0]);
    // Where none may be sent, they are numbered all the same.
    assert_eq!(numbers(&quiet), numbers(&pair));
}

#[test]
fn no_more_are_sent_than_may_be_and_all_are_numbered() {
    let mut pair = noticing(CarrierKind::Tos, [3, 0, 9]);
    let packet = packet(&mut Numbers(1));
    let mut inbox = Inbox::default();
    for _ in 0..5 {
        for mark in [0b010, 0b101] {
            if let Some(notice) = sent(&mut pair, &marked(&packet, mark)).1 {
                assert!(inbox.take(&notice));
            }
        }
    }
    let received = [0, 1].map(|stream| inbox.received(stream, &(0..5)));
    assert_eq!(received.each_ref().map(|of| (of.bodies.len(), of.missing)), [(3, 2), (0, 5)]);
    // The budget is raised from where the numbers are.
    let [allowed, ..] = &STREAMS.allow(&numbers(&pair), SESSION)[..] else { panic!("3 streams") };
    assert_eq!(allowed.args[0], ("up_to", 5 + BUDGET));
}

#[test]
fn packets_without_a_mark_have_a_stream_of_their_own() {
    let mut pair = noticing(CarrierKind::IpId, [1000; 3]);
    let mut drawn = Numbers(2);
    let mut unmarked = 0_u32;
    for _ in 0..500 {
        let packet = packet(&mut drawn);
        let (_, notice) = sent(&mut pair, &packet.bytes);
        let Some(notice) = notice else { continue };
        assert_eq!(notice[14..20], [0x80, 2, 0, 0, (unmarked >> 8) as u8, unmarked as u8]);
        assert_eq!(notice[20..33], packet.key.as_bytes()[..13]);
        unmarked += 1;
    }
    let counted = pair.switch.read_counter("Egress.packets", 3).unwrap().packets;
    assert!(unmarked > 300 && u64::from(unmarked) == counted, "{unmarked} of {counted}");
}

/// Sends packets of hierarchy 1, which has no buckets, to a daemon with that CPU port, until an
/// epoch has some; gives what its side says of them, and how many they were.
fn misfits<P: Plug + 'static>(cpu: impl FnOnce(Cable) -> P) -> (Strays<FlowKey>, u64) {
    let layout = layout(Arithmetic::Prime);
    let mut model = Model::start(&program(&layout, 8), None);
    let partition = Partition { hh: 128, hl: 384, ll: 0 };
    let attention = Attention { t_l: 1, partition, ..crate::rig::attention() };
    let mut controller = Controller::of(&layout, attention, EPOCH_MS);
    let config = config(model.address, controller.address());
    let cpu = cpu(model.cpu.take().unwrap());
    let _daemon = Daemon::start(config, packets(cpu));
    controller.welcome_with(VERSION);
    let mut drawn = Numbers(4);
    let flows: Vec<_> = (0..40).map(|_| packet(&mut drawn)).collect();
    loop {
        for (at, packet) in flows.iter().enumerate() {
            model.fabric.send(&marked(packet, if at % 2 == 0 { 0b101 } else { 0b001 }));
            Model::next(&mut model.host);
        }
        let message = controller.receive(|message| matches!(message, Message::Egress(_)));
        let Message::Egress(side) = message else { unreachable!() };
        let foreign = side.defects.foreign_packets;
        if foreign > 0 {
            let strays = side.strays.expect("they are kept by flow");
            let strays = strays.get::<FlowKey>().expect("keys of IPv4").clone();
            let keys: BTreeSet<_> = flows.iter().map(|of| of.key).collect();
            let known = |stray: &Stray<FlowKey>| keys.contains(&stray.key);
            assert!(strays.entries.iter().all(known), "{strays:?}");
            return (strays, foreign);
        }
    }
}

#[test]
fn a_side_has_strays_by_flow() {
    let (strays, foreign) = misfits(|cable| cable);
    assert_eq!((strays.beyond, strays.packets()), (0, foreign));
    let of_hierarchy = |stray: &Stray<FlowKey>| stray.hierarchy == Hierarchy::SampledLl;
    assert!(strays.entries.iter().all(of_hierarchy), "{strays:?}");
}
