//! Where a UDP port marks packets with stacks: flows are those that hosts send, and packets of
//! other protocols than TCP and UDP carry stacks as well.

use super::*;

#[test]
fn flows_are_those_that_hosts_send_whatever_their_protocol() {
    let udp_port = NonZeroU16::new(41_000);
    // UDP, TCP, SCTP, GRE and, of routers, OSPF.
    let sent = [17, 6, 132, 47, 89].map(|protocol| packet(1, protocol, 30));
    for share in [u32::MAX, 1 << 31] {
        let mut network = Network::new(Setup { udp_port, share, ..setup() }, Step::Sources);
        let mut carried = [0_u64; 5];
        for epoch in FIRST_EPOCH..FIRST_EPOCH + WINDOW {
            for round in 0..50 {
                let now = network.send(middle(epoch) + 400_000 * round, &sent);
                carried.iter_mut().zip(now).for_each(|(of, now)| *of += u64::from(now));
            }
        }
        let most = 50 * WINDOW;
        let least = if share == u32::MAX { most } else { 60 };
        assert_eq!(carried[4], 0);
        for of in &carried[..4] {
            assert!((least..=most).contains(of), "{share:x}: {carried:?}");
        }
        network.0.iter_mut().for_each(|of| of.advance_to(middle(FIRST_EPOCH + 2 * WINDOW)));
        let entered = network.0[0].entered[&FIRST_EPOCH];
        assert_eq!((entered.inserted, entered.placeless), (carried.iter().sum(), 0));
        // Of the draws, those that fell on OSPF.
        let without = entered.not_carried[NotCarried::Protocol as usize];
        assert!(without == most || share != u32::MAX && (60..most).contains(&without), "{without}");
        let window = &network.0[2].windows[&FIRST_EPOCH];
        assert_eq!(window.totals.packets, 5 * most);
        assert_eq!(window.totals.int_packets, entered.inserted);
        let with_path = window.rows.iter().filter(|row| row.path > 0);
        let mut flows: Vec<_> =
            with_path.map(|row| (row.key.protocol(), row.key.ports())).collect();
        flows.sort_unstable();
        assert_eq!(flows, [(6, (5001, 80)), (17, (5001, 80)), (47, (0, 0)), (132, (5001, 80))]);
    }
}
