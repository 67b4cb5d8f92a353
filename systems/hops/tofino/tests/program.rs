//! `p4src/hops.p4` on the model of a Tofino, filled and read by its description: what a transit
//! counts of every flow.

#[path = "../../../../p4src/agent/tests/agent/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::Path;

use calumma_hops::frames::{Counts, OFFER, Packets, Setup as Words};
use calumma_hops_tofino::Hops;
use calumma_sketch::WideKey;
use calumma_switch_host::Session;
use calumma_switchd::system::{System, Target};
use calumma_tna::Program;
use calumma_wire::Role;

use common::transit::{self, Transit};
use common::{FABRIC, HOST, Numbers, marked, packet};

fn session(setup: Words) -> Session {
    transit::session(OFFER.system, setup.encode(), 4)
}

fn transit() -> Transit {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../p4src/hops.p4");
    let session = session(Words { flows: 9, window: 1 });
    let setup = Hops::ON_TRANSITS
        .setup((Role::Transit, Target::Tofino), &session, &session.systems[0])
        .unwrap();
    Transit::new(&Program::load(path, &[]).unwrap(), setup)
}

/// What a transit has counted of an epoch.
fn counts(transit: &Transit, epoch: u64) -> Counts {
    let side = transit.side(epoch).unwrap();
    let counts = Counts::decode(&side.body).unwrap();
    let named: u64 = counts.flows.iter().map(|(_, packets)| packets.received).sum();
    assert_eq!(side.packets, named + counts.others.received);
    counts
}

/// Every flow's packets are named, or among the others together with all that could be theirs.
fn assert_bounded(counts: &Counts, passed: &BTreeMap<WideKey, Packets>) {
    let all = |of: fn(&Packets) -> u64| passed.values().map(of).sum::<u64>();
    let named = |of: fn(&Packets) -> u64| counts.flows.iter().map(|(_, it)| of(it)).sum::<u64>();
    for of in [|it: &Packets| it.received, |it: &Packets| it.refused] {
        assert_eq!(all(of), named(of) + of(&counts.others));
    }
    for (key, packets) in &counts.flows {
        assert_eq!(passed[key], *packets, "{key}");
    }
}

#[test]
fn every_packet_is_counted_in_its_epoch_and_those_the_switch_drops_are_refused() {
    let mut transit = transit();
    let mut numbers = Numbers(11);
    let mut passed = [BTreeMap::new(), BTreeMap::new()];
    transit.open(4, true);
    transit.open(5, true);
    for number in 0..8000 {
        let packet = packet(&mut numbers);
        let bit = numbers.below(2) as usize;
        let mut bytes = marked(&packet, (bit as u8) << 2 | numbers.below(4) as u8);
        let cut = number % 50 == 7;
        if cut {
            // Its ports are still there.
            bytes.truncate(bytes.len() - 4);
        }
        let sent = transit.switch.inject(HOST, &bytes);
        assert_eq!(sent.len(), usize::from(!cut), "it ends before its header says");
        assert!(sent.iter().all(|(port, sent)| (*port, sent) == (FABRIC, &bytes)), "as it came");
        let of_flow: &mut Packets = passed[bit].entry(packet.key.into()).or_default();
        *of_flow += Packets { received: 1, refused: cut.into() };
    }
    for epoch in [4, 5] {
        let (counts, passed) = (counts(&transit, epoch), &passed[epoch as usize - 4]);
        assert_bounded(&counts, passed);
        let [named, all] = [counts.flows.len(), passed.len()];
        assert!(all > 1500 && named > all * 9 / 10, "{named} of {all} flows are named");
        assert!(named < all, "and some find no cell");
        let refused = counts.flows.iter().filter(|(_, packets)| packets.refused > 0);
        assert!(refused.count() > 20);
    }
}

#[test]
fn a_late_packet_is_counted_in_no_flow() {
    let mut transit = transit();
    let packet = packet(&mut Numbers(2));
    transit.open(4, true);
    for bit in [0, 1, 0] {
        transit.switch.inject(HOST, &marked(&packet, bit << 2));
    }
    transit.open(4, false);
    transit.switch.inject(HOST, &marked(&packet, 0));
    let two = Packets { received: 2, refused: 0 };
    assert_eq!(counts(&transit, 4).flows, [(packet.key.into(), two)]);
    assert_eq!(counts(&transit, 5), Counts::default());
    let late = transit.switch.read_counter("Egress.packets", 2).unwrap().packets;
    assert_eq!(late, 2, "one of an epoch that is closed, one of one that is not open");
}

/// IPv6 flows are not told apart: their packets are counted with others.
#[test]
fn packets_of_ipv6_are_among_the_others() {
    let mut transit = transit();
    transit.open(4, true);
    let mut bytes = vec![2; 12];
    bytes.extend_from_slice(&[0x86, 0xDD, 0x60, 0, 0, 0, 0, 8, 17, 64]);
    bytes.resize(14 + 40 + 8, 9);
    assert_eq!(transit.switch.inject(HOST, &bytes), [(FABRIC, bytes.clone())]);
    // Of the other timestamp bit.
    bytes[14] = 0x68;
    transit.switch.inject(HOST, &bytes);
    let others = Packets { received: 1, refused: 0 };
    assert_eq!(counts(&transit, 4), Counts { flows: Vec::new(), others });
}

#[test]
fn a_window_of_several_epochs_is_refused() {
    let session = session(Words { flows: 9, window: 2 });
    let refused =
        Hops::ON_TRANSITS.setup((Role::Transit, Target::Tofino), &session, &session.systems[0]);
    assert!(refused.err().unwrap().starts_with("window = 2"));
}
