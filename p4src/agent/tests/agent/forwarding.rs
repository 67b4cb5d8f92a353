//! The daemon's configuration decides where packets go: by routes and over several next hops, while
//! it runs and after it was read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use calumma_bfrt::{Options, Value};
use calumma_chamelemon::{Attention, Partition, SampleRate};
use calumma_interface::{MAX_FRAME, Plug};
use calumma_sketch::{Arithmetic, FermatSketch, FlowKey};
use calumma_switchd::collector::Way;
use calumma_switchd::config::{CarrierKind, Config};
use calumma_switchd::driver::Driver;
use calumma_tna::Entry;

use crate::common::{Numbers, Packet, Pair, packet};
use crate::rig::{
    Controller, Daemon, EPOCH_MS, FABRIC, HOST, LIMIT, Model, free, layout, scrape, value,
};

/// A configuration of two ports without peers, and these routes.
fn routed(model: &Model, controller: &Controller, routes: &str) -> String {
    let text = crate::rig::text(model.address, controller.address());
    let text = text.replace(&format!("peer = {FABRIC}\n"), "speed = \"100G\"\nfec = \"rs\"\n");
    text.replace(&format!("peer = {HOST}\n"), "") + routes
}

/// A next hop behind the fabric port.
fn hop(mac: u8) -> String {
    format!(
        "{{ port = {FABRIC}, mac = \"02:00:00:00:00:{mac:02x}\", from = \"02:00:00:00:01:00\" }}"
    )
}

fn route(to: &str, macs: &[u8]) -> String {
    let hops: Vec<String> = macs.iter().map(|&mac| hop(mac)).collect();
    format!("[[route]]\nto = \"{to}\"\nvia = [{}]\n", hops.join(", "))
}

/// An untagged packet to that network.
fn to(numbers: &mut Numbers, network: [u8; 2]) -> Packet {
    loop {
        let mut packet = packet(numbers);
        if packet.ip == 14 && packet.bytes[22] > 1 {
            packet.bytes[30..32].copy_from_slice(&network);
            return packet;
        }
    }
}

/// Whether frames between ports leave as they came by now.
fn wait_for(model: &mut Model, what: &str, frame: &[u8], leaves: impl Fn(&[u8]) -> bool) {
    let end = Instant::now() + LIMIT;
    let mut buffer = vec![0; MAX_FRAME];
    loop {
        model.host.send(frame);
        std::thread::sleep(Duration::from_millis(20));
        while let Some(frame) = model.fabric.receive(&mut buffer) {
            if leaves(frame) {
                return;
            }
        }
        assert!(Instant::now() < end, "{what}");
    }
}

/// Encodes all packets in the part of heavy losses.
fn all_encoded() -> Attention {
    let partition = Partition { hh: 1024, hl: 2500, ll: 572 };
    Attention { t_h: 1_000_000, t_l: 1, sample_rate: SampleRate::ALL, partition }
}

/// What a switch says of its own packets: those that entered there and did not leave there, by
/// flow.
fn missing(pair: &Pair, bit: usize) -> BTreeMap<FlowKey, i64> {
    let hl = pair.attention.partition.hl_part();
    let part = |encoder, shape, buckets| {
        let words = pair.encoder(encoder, bit, buckets);
        FermatSketch::from_words(shape, words).unwrap().part(&hl)
    };
    let layout = &pair.layout;
    let mut upstream = part("upstream", layout.upstream_shape(), layout.upstream_buckets);
    let downstream = part("downstream", layout.downstream_shape(), layout.downstream_buckets);
    upstream.subtract(&downstream).unwrap();
    let decoded = upstream.decode(&pair.family);
    assert!(decoded.is_complete());
    decoded.into_flowset().into_iter().collect()
}

/// As docs/p4.md says: the sketches do not wait for the routes, so what has none ends as if it had
/// left.
#[test]
fn a_packet_from_a_host_that_has_no_way_to_go_on_is_recorded_dropped_and_no_loss() {
    let (unpaired, spare) = (3_u16, 68_u16);
    for (carrier, arithmetic) in [
        (CarrierKind::Tos, Arithmetic::Prime),
        (CarrierKind::Tos, Arithmetic::Wrapping),
        (CarrierKind::IpId, Arithmetic::Prime),
    ] {
        let mut pair = Pair::with_marks(carrier, arithmetic, all_encoded());
        pair.begin(9);
        let host = Entry::new("host").exact("ingress_port", unpaired);
        pair.switch.add_entry("Ingress.host_ports", &host).unwrap();
        let end = Entry::new("end_at").exact("ingress_port", unpaired).arg("port", spare);
        pair.switch.add_entry("Ingress.no_way", &end).unwrap();
        let nowhere = Entry::new("nowhere").exact("egress_port", spare);
        pair.switch.add_entry("Egress.host_ports", &nowhere).unwrap();
        let mut numbers = Numbers(3);
        for at in 0..500_u32 {
            let mut packet = to(&mut numbers, [10, 2]);
            // Half of them end with their TTL, as those of a traceroute do.
            packet.bytes[22] = if at.is_multiple_of(2) { 1 } else { 64 };
            assert_eq!(pair.switch.inject(unpaired, &packet.bytes), []);
        }
        let count = |counter, cell| pair.switch.read_counter(counter, cell).unwrap().packets;
        let entered = count("Ingress.packets", 0b011);
        assert!(entered > 400, "{entered} of all but fragments");
        assert_eq!((count("Egress.packets", 0), count("Egress.packets", 1)), (0, entered));
        assert_eq!(missing(&pair, 1), BTreeMap::new());

        // Those of the fabric that end here have entered elsewhere, and are lost.
        pair.switch
            .delete_entry("port_pair", &Entry::new("send").exact("ingress_port", FABRIC))
            .unwrap();
        let packet = to(&mut numbers, [10, 2]);
        let sent = pair.switch.inject(HOST, &packet.bytes);
        assert_eq!(pair.switch.inject(FABRIC, &sent[0].1), []);
        assert_eq!(missing(&pair, 1).into_values().collect::<Vec<i64>>(), [1]);
    }
}

/// As the daemon sets it up.
#[test]
fn all_that_enters_and_ends_at_a_switch_has_left_there() {
    let layout = layout(Arithmetic::Prime);
    let mut model = Model::start(&crate::rig::program(&layout, 8), None);
    let controller = Controller::new(&layout, EPOCH_MS);
    let routes = [
        route("10.2.0.0/16", &[1]),
        "[[route]]\nto = \"10.3.0.0/16\"\ndiscard = true\n".to_owned(),
    ];
    let listen = free();
    let text = routed(&model, &controller, &routes.concat());
    let text = format!("{text}[metrics]\nlisten = \"{listen}\"\n");
    let _daemon = Daemon::start(Config::parse(&text, "routes").unwrap(), Way::Registers);
    let mut numbers = Numbers(3);
    let mut onward = to(&mut numbers, [10, 2]);
    wait_for(&mut model, "a route", &onward.bytes, |frame| frame[..6] == [2, 0, 0, 0, 0, 1]);
    let kinds = ["ingress", "egress"]
        .map(|side| format!("calumma_edge_{side}_packets_total{{kind=\"recorded\"}}"));
    let recorded = || {
        let text = scrape(listen);
        kinds.each_ref().map(|kind| value(&text, kind).unwrap())
    };
    let [onwards, left] = recorded();
    assert!(onwards > 0.0 && left == 0.0, "{onwards} {left}");
    onward.bytes[22] = 1;
    for _ in 0..50 {
        model.host.send(&onward.bytes);
        model.host.send(&to(&mut numbers, [10, 3]).bytes);
        model.host.send(&to(&mut numbers, [10, 4]).bytes);
    }
    let end = Instant::now() + LIMIT;
    while recorded() != [onwards + 150.0, 150.0] {
        assert!(Instant::now() < end, "{:?}, and {onwards} before", recorded());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn packets_go_by_the_longest_prefix_and_flows_spread_over_next_hops() {
    let layout = layout(Arithmetic::Prime);
    let mut model = Model::start(&crate::rig::program(&layout, 8), None);
    let controller = Controller::new(&layout, EPOCH_MS);
    let routes = [
        route("0.0.0.0/0", &[1]),
        route("10.2.0.0/16", &[2, 3, 4]),
        "[[route]]\nto = \"10.3.0.0/16\"\ndiscard = true\n".to_owned(),
        route("2001:db8::/32", &[5, 6]),
    ];
    let text = routed(&model, &controller, &routes.concat());
    let config = Config::parse(&text, "routes").unwrap();
    let daemon = Daemon::start(config, Way::Registers);
    let mut numbers = Numbers(3);
    let first = to(&mut numbers, [10, 9]);
    wait_for(&mut model, "a route", &first.bytes, |frame| frame[..6] == [2, 0, 0, 0, 0, 1]);

    let mut hops = BTreeMap::<u8, u32>::new();
    for _ in 0..300 {
        let packet = to(&mut numbers, [10, 2]);
        model.host.send(&packet.bytes);
        model.host.send(&to(&mut numbers, [10, 3]).bytes);
        // Shorter than its header says.
        let mut broken = to(&mut numbers, [10, 9]).bytes;
        let length = broken.len() as u16 - 14;
        broken[16..18].copy_from_slice(&(length + 1).to_be_bytes());
        model.host.send(&broken);
        let frame = Model::next(&mut model.fabric);
        assert_eq!(frame[30..32], [10, 2], "the others end here");
        assert_eq!(frame[6..12], [2, 0, 0, 0, 1, 0]);
        assert_eq!(frame[22], packet.bytes[22] - 1, "the TTL");
        *hops.entry(frame[5]).or_default() += 1;
    }
    assert_eq!(hops.keys().copied().collect::<Vec<u8>>(), [2, 3, 4]);
    assert!(hops.values().all(|&flows| (60..=140).contains(&flows)), "{hops:?}");

    let mut hops = BTreeMap::<u8, u32>::new();
    for flow in 0..64 {
        let mut frame = vec![0; 14 + 40 + 8];
        frame[12..14].copy_from_slice(&[0x86, 0xDD]);
        frame[14] = 0x60;
        frame[19] = 8;
        frame[20] = 59;
        frame[21] = 7;
        frame[22..26].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        frame[37] = flow;
        frame[38..42].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        model.host.send(&frame);
        let left = Model::next(&mut model.fabric);
        assert_eq!(left[21], 6, "the hop limit");
        assert_eq!((&left[12..21], &left[22..]), (&frame[12..21], &frame[22..]));
        *hops.entry(left[5]).or_default() += 1;
    }
    assert!(hops[&5] > 10 && hops[&6] > 10 && hops.len() == 2, "{hops:?}");

    // A daemon that starts anew leaves the port as it is: one that is set anew counts from nothing.
    drop(daemon);
    let mut controller = Controller::new(&layout, EPOCH_MS);
    let config = Config::parse(&routed(&model, &controller, ""), "no routes").unwrap();
    let daemon = Daemon::start(config, Way::Registers);
    controller.welcome();
    drop(daemon);
    let runtime = Arc::new(tokio::runtime::Runtime::new().unwrap());
    let options = Options {
        address: model.address.to_string(),
        device: 0,
        client: 7,
        program: "edge".to_owned(),
    };
    let driver = Driver::connect(&runtime, &options).unwrap();
    let port = driver.fixed("$PORT", ("$DEV_PORT", HOST.into())).unwrap().unwrap();
    let value = |name| driver.info().table("$PORT").unwrap().value(&port, name);
    assert_eq!(value("$SPEED"), Some(Value::Word("BF_SPEED_100G".to_owned())));
    assert_eq!(value("$FEC"), Some(Value::Word("BF_FEC_TYP_REED_SOLOMON".to_owned())));
    assert_eq!(value("$PORT_UP"), Some(Value::Bool(true)));
    let counts = driver.fixed("$PORT_STAT", ("$DEV_PORT", HOST.into())).unwrap().unwrap();
    let received = driver.info().table("$PORT_STAT").unwrap().value(&counts, "$FramesReceivedOK");
    assert!(matches!(received, Some(Value::Number(64..))), "{received:?}");
    assert!(driver.fixed("$PORT", ("$DEV_PORT", FABRIC.into())).unwrap().is_none());
}

#[test]
fn what_is_read_again_holds_and_what_can_not_hold_changes_nothing() {
    let layout = layout(Arithmetic::Prime);
    let mut model = Model::start(&crate::rig::program(&layout, 8), None);
    let controller = Controller::new(&layout, EPOCH_MS);
    let text = crate::rig::text(model.address, controller.address());
    let config = Config::parse(&text, "pairs").unwrap();
    let daemon = Daemon::start(config, Way::Registers);
    let mut numbers = Numbers(3);
    let packet = to(&mut numbers, [10, 9]);
    let dst = |mac: u8| move |frame: &[u8]| frame[..6] == [2, 0, 0, 0, 0, mac];
    let as_it_came = |frame: &[u8]| frame[..12] == packet.bytes[..12];
    wait_for(&mut model, "a pair of ports", &packet.bytes, as_it_came);

    daemon.reload(&routed(&model, &controller, &route("10.0.0.0/8", &[1])));
    wait_for(&mut model, "the first route", &packet.bytes, dst(1));
    // More routes than the table has entries, and what is no configuration.
    let many: String =
        (0..2000).map(|n| route(&format!("10.9.{}.{}/32", n >> 8, n & 0xFF), &[2])).collect();
    for wrong in [routed(&model, &controller, &many), "name = 1".to_owned()] {
        daemon.reload(&wrong);
        std::thread::sleep(Duration::from_millis(300));
        wait_for(&mut model, "the first route again", &packet.bytes, dst(1));
    }
    daemon.reload(&routed(&model, &controller, &route("10.0.0.0/8", &[3, 4])));
    wait_for(&mut model, "next hops", &packet.bytes, |frame| dst(3)(frame) || dst(4)(frame));
    daemon.reload(&text);
    wait_for(&mut model, "the pair of ports again", &packet.bytes, as_it_came);
}
