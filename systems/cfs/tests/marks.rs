//! Hops that marks say: packets of a flow pass some of the switches between two edges, each packet
//! others, while tables are full and windows turn. Each switch raises the number, flows are graded
//! by that of their first packet, what is said to be exact is what came, and packets leave as they
//! entered. And packets that have no mark, as they enter or on their way.

mod common;

use std::collections::BTreeMap;

use calumma_cfs::frames::{Graded, Hop, Setup, salt};
use calumma_plane::Carrier;
use calumma_plane::carrier::{Shim, Tos, Way};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::secret::hash_key;
use calumma_plane::system::SessionContext;
use calumma_plane::worker::Path;
use calumma_sketch::{HashFamily, KeyKind, WideKey};
use calumma_wire::Role;
use proptest::prelude::*;

use common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, begin, clock, flow, frame, secret, session};

const WINDOW: u64 = 2;
const ROLES: [Role; 4] = [Role::Edge, Role::Transit, Role::Transit, Role::Edge];

/// Packets and bytes of a flow in a window, and how far the first had come.
#[derive(Clone, Copy, Debug)]
struct Came {
    packets: u64,
    bytes: u64,
    way: Way,
}

fn setup(length: u8, grade: Graded) -> Setup {
    let (entries, window_epochs, filter_bits) = (256, WINDOW as u16, 1 << 16);
    let hop = Hop::Mark { length };
    Setup { entries, filter_bits, window_epochs, hop, grade, claim: false, ..Setup::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn exact_counts_are_right_whichever_switches_raised_the_hop(
        // Of each packet: its flow, and which of the switches in the middle it passes.
        bursts in prop::collection::vec(
            prop::collection::vec((0_u32..900, prop::array::uniform2(any::<bool>())), 1..32),
            60..140,
        ),
        (length, grade) in prop::sample::select(vec![
            (0, Graded::Fold), (4, Graded::Greedy), (4, Graded::Even), (2, Graded::Even),
            (0, Graded::Even),
        ]),
        keys in prop::sample::select(vec![KeyKind::Ipv4, KeyKind::Dual]),
        buckets in prop::sample::select(vec![None, Some(64)]),
        claim: bool,
    ) {
        let setup = Setup { residual: buckets, claim, ..setup(length, grade) };
        let carrier = Carrier::Shim(Shim { hops: true, ..Shim::default() });
        let net = Net { carrier, keys, setup };
        let mut switches: Vec<Switch> = (1..)
            .zip(ROLES)
            .map(|(node, role)| Switch::with_role(&net, node, 1, role))
            .collect();
        let mut truth: [BTreeMap<(u64, WideKey), Came>; 4] = Default::default();
        let start = clock().start_of(FIRST_EPOCH);
        for (at, burst) in bursts.into_iter().enumerate() {
            let now_ns = start + at as u64 * 1_500_000;
            switches.iter_mut().for_each(|switch| switch.advance_to(now_ns));
            let epoch = clock().epoch_at(now_ns) / WINDOW * WINDOW;
            for (number, [by_first, by_second]) in burst {
                let key = flow(number, keys);
                let mut packet = frame(&key, 60, 20);
                let before = packet.bytes().to_vec();
                let mut hop = 0;
                for (at, passes) in [true, by_first, by_second, true].into_iter().enumerate() {
                    if !passes {
                        continue;
                    }
                    let way = Way { hop, length };
                    let of_flow = truth[at].entry((epoch, key));
                    let came = of_flow.or_insert(Came { packets: 0, bytes: 0, way });
                    came.packets += 1;
                    came.bytes += before.len() as u64 - 14;
                    let path = match at {
                        0 => Path::Enter,
                        3 => Path::Leave,
                        _ => Path::Transit,
                    };
                    switches[at].pass_all(0, path, std::slice::from_mut(&mut packet));
                    hop += 1;
                    if at < 3 {
                        let shim = &packet.bytes()[12..18];
                        prop_assert_eq!((&shim[..3], shim[3] & 3), (&[0x88, 0xB5, 0xCA][..], 3));
                        prop_assert_eq!(&shim[4..], [hop, length]);
                    }
                }
                prop_assert_eq!(packet.bytes(), &before[..]);
            }
        }
        let family = HashFamily::new(&hash_key(&secret()));
        let mut exact = [0; 4];
        for (at, switch) in switches.iter_mut().enumerate() {
            switch.advance_to(start + 20 * EPOCH_NS);
            for (epoch, window) in &switch.windows {
                let seeds = (setup.seed(epoch / WINDOW), salt(at as u16 + 1));
                for entry in &window.entries {
                    let came = truth[at][&(*epoch, entry.key)];
                    prop_assert!(entry.packets <= came.packets && entry.bytes <= came.bytes);
                    if entry.exact {
                        exact[at] += 1;
                        let counted = (entry.packets, entry.bytes);
                        prop_assert_eq!(counted, (came.packets, came.bytes));
                        let (hashes, grade) = (family.hash(&entry.key), entry.rank.grade());
                        let wanted = setup.grade_at(&family, &hashes, seeds, came.way);
                        prop_assert_eq!(grade, wanted);
                        let hop = setup.hop_graded(&family, &hashes, seeds, grade);
                        prop_assert_eq!(hop, Some(came.way.hop));
                    }
                }
                let came = truth[at].range((*epoch, WideKey::default())..);
                let came = came.take_while(|((of, _), _)| of == epoch).map(|(_, came)| came.packets);
                prop_assert_eq!(window.totals.packets, came.sum::<u64>());
            }
        }
        prop_assert!(exact.iter().all(|&of| of > 0), "{:?}", exact);
    }
}

#[test]
fn a_carrier_without_room_for_hops_is_named_with_the_remedy() {
    let refused = begin(&session(1, 1), setup(0, Graded::Fold)).map(drop).unwrap_err();
    let why = "hop = \"mark\" needs the shim carrier, with hops: set [carrier] kind = \"shim\" and \
               hops = true at all switches";
    assert_eq!(refused, why);
    let with_room = SessionContext { carries_hops: true, ..session(1, 1) };
    assert!(begin(&with_room, setup(0, Graded::Fold)).is_ok());
}

/// By the identification: what the fabric may cut, and fragments. A stranger's packet, which may
/// have lost its mark on the way, does.
#[test]
fn what_enters_without_a_mark_leaves_no_switch_between_in_doubt() {
    let setup = Setup { hop: Setup::default().hop, ..setup(0, Graded::Fold) };
    let net = Net { carrier: Carrier::IpId, keys: KeyKind::Ipv4, setup };
    for (payload, flags, unmarked) in [(1400, 0, 0), (20, 0x20, 0), (1400, 0x40, 1), (20, 0, 1)] {
        let mut switch = Switch::with_role(&net, 1, 1, Role::Transit);
        switch.advance_to(clock().start_of(FIRST_EPOCH) + EPOCH_NS / 2);
        let mut bytes = frame(&flow(2, net.keys), 64, payload).bytes().to_vec();
        bytes[20] = flags;
        let stranger = frame(&flow(4, net.keys), 64, 20);
        switch.pass_all(0, Path::Transit, &mut [stranger, Frame::new(bytes)]);
        switch.advance_to(clock().start_of(FIRST_EPOCH) + 8 * EPOCH_NS);
        let totals = &switch.windows[&FIRST_EPOCH].totals;
        assert_eq!((totals.packets, totals.unmarked), (0, 1 + unmarked), "{payload} {flags:x}");
    }
}

/// A packet that has lost its mark on the way may be of either window that is open as it comes.
#[test]
fn a_packet_without_a_mark_is_noted_in_each_window_that_is_open() {
    let setup = Setup { hop: Setup::default().hop, ..setup(0, Graded::Fold) };
    let carrier = Carrier::SignedTos(Tos::default());
    let net = Net { carrier, keys: KeyKind::Dual, setup };
    let start = clock().start_of(FIRST_EPOCH);
    let boundary = start + WINDOW * EPOCH_NS;
    // Where packets of the next window come before this clock flips, and those of the last one
    // after it did.
    for (at_ns, noted) in [
        (boundary - EPOCH_NS / 2, [7, 0]),
        (boundary - 1000, [7, 7]),
        (boundary + 1000, [7, 7]),
        (boundary + EPOCH_NS / 2, [0, 7]),
    ] {
        let mut edge = Switch::new(&net, 1, 1);
        edge.advance_to(at_ns);
        let mut unmarked: Vec<_> = (0..7).map(|n| frame(&flow(n, net.keys), 60, 20)).collect();
        edge.pass_all(0, Path::Leave, &mut unmarked);
        edge.advance_to(start + 12 * EPOCH_NS);
        let of = |epoch: u64| edge.windows[&epoch].totals.unmarked;
        let once = edge.totals()["cfs.unmarked"];
        let noted_in = [of(FIRST_EPOCH), of(FIRST_EPOCH + WINDOW)];
        assert_eq!((noted_in, once), (noted, 7), "{at_ns}, and the boundary at {boundary}");
    }
}
