//! Packets from hosts get the stack that a software source gives them, or go without for the same
//! reason.

use calumma_plane::Packet;
use calumma_plane::int::push::{self, NotCarried, Pushed};
use calumma_plane::int::{Hop, MARKER, header};
use calumma_plane::packet::Frame;
use calumma_tna::{Entry, Switch};
use proptest::prelude::*;

use crate::host::{Host, hosts};
use crate::{DOMAIN, MTU, NODE, between, insertion, sent_by};

const HOPS: u8 = 4;

/// Cells of the program's counter.
const WITH_HOP: usize = 1;
const WITH_HEADER: usize = 2;
const TOO_LONG: usize = 3;
const CHECKSUM: usize = 4;
const PROTOCOL: usize = 5;
const FRAGMENT: usize = 6;

fn tofino() -> Switch {
    let mut switch = between(1, 2);
    let host = Entry::new("host").exact("ingress_port", 1u16);
    switch.add_entry("Ingress.host_ports", &host).unwrap();
    switch.set_default_action("Ingress.clearing", "clear", &[]).unwrap();
    let source = Entry::new("source_as")
        .exact("enters", 1u8)
        .exact("hdr.bridge.timestamp", 0u8)
        .arg("number", NODE)
        .arg("of_domain", DOMAIN.get())
        .arg("hops", HOPS);
    switch.add_entry("Egress.push.source.insertion", &source).unwrap();
    switch.set_default_action("Egress.push.source.sourcing", "allow", &[]).unwrap();
    switch
}

/// What a software source sends of a frame, and how it goes.
fn by_software(host: &Host, latency_ns: u32) -> (Vec<u8>, Result<Pushed, NotCarried>) {
    let mut packet = Frame::with_headroom(64, &host.bytes());
    let hop = Hop { node: NODE.into(), latency_ns, ..Hop::UNKNOWN };
    header::set_marker(&mut packet, host.ip_offset(), false);
    let insertion = insertion(NODE, HOPS);
    // A Tofino's limit is without tags, and without what is behind the packet.
    let mtu = usize::from(MTU) + 4 * host.tags + host.behind();
    let dscp = host.tos >> 2;
    let went = push::source(&mut packet, host.ip_offset(), (&insertion, &hop), dscp, mtu);
    (packet.bytes().to_vec(), went)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn hosts_packets_enter_either_switch_to_the_same_bytes(
        host in hosts(),
        latency_ns in 0..u32::MAX,
    ) {
        let mut tofino = tofino();
        let bytes = host.bytes();
        let sent = sent_by(&mut tofino, latency_ns, &bytes);
        let count = |cell| tofino.read_counter("Egress.push.source.packets", cell).unwrap().packets;
        let counts: Vec<u64> = (0..7).map(count).collect();
        let (wanted, went) = by_software(&host, latency_ns);
        let Some(sent) = sent else {
            // A router must drop it: IPv4 that says it is longer than it is.
            prop_assert!(!host.ipv6 && host.total != 0 && went == Err(NotCarried::Protocol));
            return Ok(());
        };
        prop_assert_eq!(&sent, &wanted, "{:?}", went);
        let cell = match went {
            // Of packets that are no flows, a software switch does not say why. They may be shorter
            // than they say, where the Ethernet frame has room for that.
            Err(NotCarried::Protocol | NotCarried::Fragment) if host.total != 0 => {
                prop_assert_eq!(counts[PROTOCOL] + counts[FRAGMENT], 1);
                return Ok(());
            }
            Ok(Pushed::Hop) => WITH_HOP,
            Ok(_) => WITH_HEADER,
            Err(NotCarried::Mtu) => TOO_LONG,
            Err(NotCarried::Checksum) => CHECKSUM,
            Err(NotCarried::Fragment) => FRAGMENT,
            Err(_) => PROTOCOL,
        };
        let wanted: Vec<u64> = (0..7).map(|at| u64::from(cell == at && cell > 0)).collect();
        prop_assert_eq!(counts, wanted, "{:?}", went);
        let cleared = tofino.read_counter("Ingress.markers", 0).unwrap().packets;
        prop_assert_eq!(cleared, u64::from(host.tos & MARKER != 0));
    }
}

#[test]
fn nothing_is_put_into_packets_between_hosts_or_before_there_is_a_domain() {
    let host = Host {
        tags: 0,
        ipv6: false,
        protocol: 17,
        options: 0,
        tos: 0x14,
        fragment: 0,
        total: 0,
        udp: 0,
        offset: 5,
        ip_checksum: 7,
        checksum: 9,
        payload: vec![1; 30],
        padding: 0,
    };
    let bytes = host.bytes();
    let mut cleared = Frame::new(bytes.clone());
    header::set_marker(&mut cleared, host.ip_offset(), false);
    let mut local = tofino();
    let to_host = Entry::new("host").exact("egress_port", 2u16).arg("dscp", 0u8);
    local.add_entry("Egress.host_ports", &to_host).unwrap();
    assert_eq!(sent_by(&mut local, 1, &bytes).as_deref(), Some(cleared.bytes()));
    assert_eq!(sent_by(&mut between(1, 2), 1, &bytes), Some(bytes.clone()));
    // Nor in an epoch without an entry, or where the switch has stopped all.
    let cleared = Some(cleared.bytes());
    let mut other = tofino();
    let value = [("value", 1)];
    other.set_default_action("Ingress.timestamp", "set_timestamp", &value).unwrap();
    assert_eq!(sent_by(&mut other, 1, &bytes).as_deref(), cleared);
    let mut stopped = tofino();
    stopped.set_default_action("Egress.push.source.sourcing", "NoAction", &[]).unwrap();
    assert_eq!(sent_by(&mut stopped, 1, &bytes).as_deref(), cleared);
    assert_ne!(sent_by(&mut tofino(), 1, &bytes).as_deref(), cleared);
}
