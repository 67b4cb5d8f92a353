//! Hops that ports say: packets of a flow come by several ports, with other numbers and other times
//! to live, while the table is full and windows turn. Flows are graded by the port of their first
//! packet, and what is said to be exact is what came.

mod common;

use std::collections::BTreeMap;

use calumma_cfs::frames::{Hop, PortHops, Setup, salt};
use calumma_plane::Carrier;
use calumma_plane::carrier::{Tos, Way};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::secret::hash_key;
use calumma_plane::system::SessionContext;
use calumma_plane::worker::Path;
use calumma_sketch::{HashFamily, KeyKind, WideKey};
use proptest::prelude::*;

use common::{EPOCH_NS, FIRST_EPOCH, Net, Switch, begin, clock, flow, frame, secret, session};

const WINDOW: u64 = 2;

fn setup(hops: &[u8]) -> Setup {
    let (entries, window_epochs) = (256, WINDOW as u16);
    let (filter_bits, hop) = (1 << 16, Hop::Port(PortHops::new(hops).unwrap()));
    Setup { entries, filter_bits, window_epochs, claim: false, hop, ..Setup::default() }
}

/// Packets and bytes of a flow in a window, and the port of the first.
#[derive(Clone, Copy, Debug)]
struct Came {
    packets: u64,
    bytes: u64,
    port: usize,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn exact_counts_are_right_whichever_ports_packets_come_by(
        bursts in prop::collection::vec(
            (prop::collection::vec((0_u32..900, 0_u8..4), 1..32), 0_usize..2, 0_usize..3),
            60..180,
        ),
        // Folding has the same grade for 17 as for 1: these are no two hops.
        hops in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 5, 16]), 3),
        keys in prop::sample::select(vec![KeyKind::Ipv4, KeyKind::Dual]),
        buckets in prop::sample::select(vec![None, Some(64)]),
    ) {
        let setup = Setup { residual: buckets, ..setup(&hops) };
        let net = Net { carrier: Carrier::Tos(Tos::default()), keys, setup };
        let mut switch = Switch::new(&net, 1, 2);
        let mut truth: BTreeMap<(u64, WideKey), Came> = BTreeMap::new();
        let start = clock().start_of(FIRST_EPOCH);
        for (at, (burst, lcore, port)) in bursts.into_iter().enumerate() {
            let now_ns = start + at as u64 * 1_500_000;
            switch.advance_to(now_ns);
            switch.received_by(lcore, port);
            let mut frames: Vec<Frame> = Vec::new();
            for (number, less) in burst {
                // Flows of one lcore mostly.
                if number % 16 != 0 && number as usize % 2 != lcore {
                    continue;
                }
                let packet = frame(&flow(number, keys), 60 - less, 20);
                let of_flow = (clock().epoch_at(now_ns) / WINDOW * WINDOW, flow(number, keys));
                let came = truth.entry(of_flow).or_insert(Came { packets: 0, bytes: 0, port });
                came.packets += 1;
                came.bytes += packet.bytes().len() as u64 - 14;
                frames.push(packet);
            }
            switch.pass_all(lcore, Path::Enter, &mut frames);
        }
        switch.advance_to(start + 20 * EPOCH_NS);
        let family = HashFamily::new(&hash_key(&secret()));
        let mut exact = 0;
        for (epoch, window) in &switch.windows {
            let seeds = (setup.seed(epoch / WINDOW), salt(1));
            for entry in &window.entries {
                let came = truth[&(*epoch, entry.key)];
                prop_assert!(entry.packets <= came.packets && entry.bytes <= came.bytes);
                let (hashes, grade) = (family.hash(&entry.key), entry.rank.grade());
                prop_assert!(setup.is_graded_at_a_hop(&family, &hashes, seeds, grade));
                if entry.exact {
                    exact += 1;
                    prop_assert_eq!((entry.packets, entry.bytes), (came.packets, came.bytes));
                    let hop = hops[came.port];
                    let way = Way { hop, length: 0 };
                    prop_assert_eq!(grade, setup.grade_at(&family, &hashes, seeds, way));
                    prop_assert_eq!(setup.hop_graded(&family, &hashes, seeds, grade), Some(hop));
                }
            }
            let came = truth.range((*epoch, WideKey::default())..);
            let came = came.take_while(|((of, _), _)| of == epoch).map(|(_, came)| came.packets);
            prop_assert_eq!(window.totals.packets, came.sum::<u64>());
        }
        prop_assert!(exact > 0);
    }
}

#[test]
fn a_port_without_a_number_is_named() {
    let with = |ports| SessionContext { ports: Some(("s1".to_owned(), ports)), ..session(1, 1) };
    let refused = begin(&with(3), setup(&[1, 1])).map(drop).unwrap_err();
    assert_eq!(refused, "hop = \"port\": node s1 has no number for port 2");
    assert!(begin(&with(2), setup(&[1, 1])).is_ok());
    assert!(begin(&session(1, 1), setup(&[])).is_ok(), "it is not known which ports there are");
}
