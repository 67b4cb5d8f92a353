//! A controller that stands still for a while: the switch goes on forwarding and measuring, holds
//! the newest epochs that fit into what was set aside for them, and says how much it had to give
//! up.

use std::net::TcpListener;
use std::sync::mpsc::channel;

use crate::common::{EAL, Edge, Folder, listen, status_when, totals, welcome};
use calumma_chamelemon::Layout;
use calumma_chamelemon::frames::Message;
use calumma_edge::status::Status;
use calumma_epoch::{EpochClock, Guards};

/// What the switch may hold, as it is configured, in bytes.
const MOST_HELD: u64 = 1 << 20;

/// Frames given up; none before the switch has published its first figures.
fn given_up(status: &Status) -> u64 {
    status.counters.get("undelivered.frames").copied().unwrap_or_default()
}

/// A capture of as many flows, a packet each.
fn capture(flows: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xA1B2_C3D4, 2 | 4 << 16, 0, 0, 2000, 1_u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for flow in 0..flows {
        for word in [0, 0, 60, 60_u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let mut frame = [0; 60];
        frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 46]);
        frame[23] = 17;
        frame[26..30].copy_from_slice(&[10, 1, 0, 1]);
        frame[30..34].copy_from_slice(&[10, 2, 0, 1]);
        frame[34..36].copy_from_slice(&flow.to_be_bytes());
        bytes.extend_from_slice(&frame);
    }
    bytes
}

#[test]
fn a_controller_that_stands_still_stops_no_lcore_and_takes_no_more_than_its_share_of_memory() {
    let folder = Folder::new("slow-controller");
    let capture = folder.write("in.pcap", capture(600));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let config = folder.write(
        "edge.toml",
        format!(
            "name = 'e1'\ncontroller = '{address}'\n[process]\nhold_mib = 1\n[metrics]\nlisten = '{metrics}'\n\
             [[port]]\nname = 'net_pcap0'\nrole = 'host'\npeer = 'net_null0'\n\
             [[port]]\nname = 'net_null0'\nrole = 'fabric'\npeer = 'net_pcap0'\n"
        ),
    );
    let mut eal: Vec<String> = EAL.map(str::to_owned).into();
    eal.extend([
        "--lcores=0@0".to_owned(),
        format!(
            "--vdev=net_pcap0,rx_pcap={capture},infinite_rx=1,tx_pcap={}",
            folder.file("back.pcap")
        ),
        "--vdev=net_null0,no-rx=1".to_owned(),
    ]);
    let stats = folder.file("stats.json");
    let edge = Edge::start(&["--config", &config, "--stats", &stats], &eal);

    // Welcomed, and then not read from.
    let guards = Guards { clock_ns: 1_000_000, flight_ns: 3_000_000 };
    let (layout, clock) = (Layout::default(), EpochClock::new(10_000_000, guards).unwrap());
    let stream = welcome(&listener, &layout, clock);
    let full = status_when(&metrics, |status| {
        assert!(status.controller.held_bytes <= MOST_HELD);
        given_up(status) > 0
    });
    assert!(full.controller.held_bytes > MOST_HELD * 9 / 10);
    let later = status_when(&metrics, |status| given_up(status) >= given_up(&full) + 60);
    assert!(later.counters["ingress.recorded"] > full.counters["ingress.recorded"]);
    assert!(later.controller.connected && later.controller.held_bytes <= MOST_HELD);

    // Read from again: what is held comes, in order and without gaps, and what is missing is
    // counted.
    let (tell, heard) = channel();
    std::thread::spawn(move || listen(stream, &layout, &tell));
    let (mut before, mut gaps, mut epochs) = (None, 0, 0);
    for message in heard.iter() {
        let Message::Ingress(ingress) = message else { continue };
        gaps += u32::from(before.is_some_and(|before: u64| before + 1 != ingress.epoch));
        before = Some(ingress.epoch);
        epochs += 1;
        if ingress.counters.iter().any(|(name, total)| name == "undelivered.frames" && *total >= 60)
        {
            break;
        }
    }
    assert!(epochs > 20, "{epochs} epochs");
    assert!(gaps <= 1, "all that was given up lies in one piece: {gaps} gaps");
    drop(heard);
    edge.signal("TERM");
    let (ended, said) = edge.ended();
    assert!(ended.success(), "{said}");
    let totals = totals(stats);
    assert_eq!(
        totals["received.host"],
        totals["transmitted"] + totals["dropped.transmit_queue_full"]
    );
}
