//! Captures through two edges in virtual time: the reports are exactly what the capture says.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use calumma_chamelemon::{Attention, Layout};
use calumma_controller::analyse::Tasks;
use calumma_controller::report::{DecodeState, EpochReport, Flow};
use calumma_edge::parse::{Parsed, parse};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::tower::Level;
use calumma_sketch::{HashKey, KeyKind, WideKey};
use calumma_testbed::capture::{Capture, PcapWriter};
use calumma_testbed::replay::{self, Lose, Replay, Setup};
use calumma_testenv::capture;

const LENGTH_NS: u64 = 50_000_000;

/// Memory that lets all encoders decode, whatever the capture, and a classifier without collisions
/// to speak of, so that a flow is a heavy-hitter candidate from its T_h-th packet on.
fn setup(t_h: u32) -> Setup {
    let layout = Layout {
        upstream_buckets: 40_000,
        downstream_buckets: 20_000,
        classifier: vec![Level::new(8, 1 << 24), Level::new(16, 1 << 22)],
        ..Layout::default()
    };
    Setup {
        attention: Attention { t_h, ..Attention::healthy(&layout, 20_000) },
        layout,
        hash_key: HashKey::from_bytes([9; 32]),
        clock: EpochClock::new(LENGTH_NS, Guards::default()).unwrap(),
        tasks: Tasks { heavy_hitter: 0, heavy_change: u64::MAX },
    }
}

/// What happened in one epoch.
#[derive(Default)]
struct Truth {
    entered: HashMap<Flow, u64>,
    lost: HashMap<Flow, u64>,
}

/// Replays a capture, and finds out by itself what happened.
fn replay_with_truth(
    path: &Path,
    setup: Setup,
    lose: Lose,
) -> (Vec<EpochReport>, HashMap<u64, Truth>) {
    let keys = setup.layout.keys;
    let mut replay = Replay::new(setup, lose.clone());
    let mut fate = lose;
    let mut truth: HashMap<u64, Truth> = HashMap::new();
    let mut reports = Vec::new();
    let mut capture = Capture::open(path).unwrap();
    let mut now_ns = 0;
    while let Some(record) = capture.next_record().unwrap() {
        let wire_len = record.original_len as usize;
        now_ns = record.timestamp_ns.max(now_ns);
        let of_epoch = truth.entry(now_ns / LENGTH_NS).or_default();
        let measured: Option<(Flow, usize)> = match parse(record.bytes, wire_len) {
            Parsed::Flow { key, ip_offset } => Some(((&key).into(), ip_offset)),
            Parsed::Flow6 { key, ip_offset } if keys == KeyKind::Dual => {
                Some(((&WideKey::from_bytes(key)).into(), ip_offset))
            }
            _ => None,
        };
        if let Some((flow, ip_offset)) = measured {
            *of_epoch.entered.entry(flow).or_default() += 1;
            if fate.decides(record.bytes, ip_offset) {
                *of_epoch.lost.entry(flow).or_default() += 1;
            }
        }
        reports.extend(replay.packet(record.timestamp_ns, wire_len, record.bytes).unwrap());
    }
    reports.extend(replay.finish().unwrap());
    (reports, truth)
}

/// Checks every epoch's losses, and the exact sizes of the flows that reached T_h.
fn check(path: &Path, t_h: u32, lose: Lose) -> u64 {
    check_with(path, setup(t_h), lose)
}

fn check_with(path: &Path, setup: Setup, lose: Lose) -> u64 {
    let t_h = setup.attention.t_h;
    let (reports, truth) = replay_with_truth(path, setup, lose);
    assert!(reports.len() >= truth.len(), "a report for every epoch");
    let mut lost_in_all = 0;
    for report in &reports {
        let truth = &truth[&report.epoch];
        assert!(report.complete, "{:?}", report.incomplete_because);
        assert_eq!(report.decode.hl, DecodeState::Complete);
        assert!(report.surplus.is_empty());
        let lost: HashMap<Flow, u64> =
            report.loss.iter().map(|loss| (loss.flow, loss.lost)).collect();
        assert_eq!(lost, truth.lost, "losses of epoch {}", report.epoch);
        lost_in_all += lost.values().sum::<u64>();

        let ingress = &report.edges[0];
        assert_eq!(ingress.hh_decode, DecodeState::Complete);
        assert_eq!(ingress.packets_in, Some(truth.entered.values().sum()));
        let sizes: HashMap<Flow, u64> =
            ingress.heavy_hitters.iter().map(|hitter| (hitter.flow, hitter.size)).collect();
        let large: HashMap<Flow, u64> = truth
            .entered
            .iter()
            .filter(|&(_, &size)| size >= u64::from(t_h))
            .map(|(flow, &size)| (*flow, size))
            .collect();
        let reached: HashMap<Flow, u64> =
            sizes.into_iter().filter(|&(_, size)| size >= u64::from(t_h)).collect();
        assert_eq!(reached, large, "sizes of epoch {}", report.epoch);
    }
    lost_in_all
}

/// A capture of `packets` packets of Zipf-like flows over a quarter of a second, every seventh with
/// ECN "congestion experienced".
pub(crate) fn made_up(packets: u32) -> PathBuf {
    let path = std::env::temp_dir().join(format!("calumma-{}-{packets}.pcap", std::process::id()));
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for n in 0..packets {
        let flow = n % (1 + n % 97) % (1 + n % 13);
        let mut frame = vec![2; 12];
        let ecn = if n % 7 == 0 { 3 } else { 0 };
        frame.extend_from_slice(&[8, 0, 0x45, ecn, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0]);
        frame.extend_from_slice(&[flow as u8, 10, 200, 0, 1, 0x30, 0x39, 0, 80, 0, 8, 0, 0]);
        let time = 1_700_000_000_000_000_000 + u64::from(n) * 250_000_000 / u64::from(packets);
        writer.write(time, frame.len() as u32, &frame).unwrap();
    }
    fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

/// Half of the packets of [`made_up`] as IPv6: flows of both families whose addresses end alike.
pub(crate) fn made_up_of_both_families(packets: u32) -> PathBuf {
    let path = std::env::temp_dir().join(format!("calumma-{}-dual.pcap", std::process::id()));
    let narrow = made_up(packets);
    let mut capture = Capture::open(&narrow).unwrap();
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    let mut number = 0;
    while let Some(record) = capture.next_record().unwrap() {
        let four = record.bytes;
        let mut frame = four.to_vec();
        if number % 2 == 0 {
            let ecn = four[15] & 3;
            frame.truncate(12);
            frame.extend_from_slice(&[0x86, 0xDD, 0x60, ecn << 4, 0, 0, 0, 8, 17, 64]);
            for address in [&four[26..30], &four[30..34]] {
                frame.extend_from_slice(&[0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0]);
                frame.extend_from_slice(address);
            }
            frame.extend_from_slice(&four[34..42]);
        }
        number += 1;
        writer.write(record.timestamp_ns, frame.len() as u32, &frame).unwrap();
    }
    fs::write(&path, writer.finish().unwrap()).unwrap();
    fs::remove_file(narrow).unwrap();
    path
}

#[test]
fn ipv4_and_ipv6_flows_of_one_capture_are_measured_alike_by_wide_keys() {
    let mut setup = setup(4);
    setup.layout.keys = KeyKind::Dual;
    let capture = made_up_of_both_families(3_001);
    assert_eq!(check_with(&capture, setup.clone(), Lose::Nothing), 0);
    assert_eq!(check_with(&capture, setup.clone(), Lose::CongestionExperienced), 429);
    assert!(check_with(&capture, setup, Lose::share(0.1, 5)) > 200);
    fs::remove_file(capture).unwrap();
}

#[test]
fn packets_marked_congestion_experienced_are_lost_and_named() {
    let path = made_up(20_000);
    let lost = check(&path, 1, Lose::CongestionExperienced);
    assert_eq!(lost, 20_000_u64.div_ceil(7));
    assert_eq!(check(&path, 50, Lose::CongestionExperienced), lost);
    assert_eq!(check(&path, 1, Lose::Nothing), 0);
    fs::remove_file(path).unwrap();
}

#[test]
fn mixed_captures_give_exact_losses_and_sizes_at_every_threshold() {
    let Some(path) = capture("mixed-captures.pcap") else { return };
    for t_h in [1, 2, 10] {
        assert!(check(&path, t_h, Lose::share(0.02, 7)) > 5000);
    }
    check(&path, 1, Lose::CongestionExperienced);
}

#[test]
fn a_backbone_link_gives_exact_losses_and_sizes_at_every_threshold() {
    let Some(path) = capture("backbone-65k.pcap") else { return };
    for t_h in [1, 2, 10] {
        assert!(check(&path, t_h, Lose::share(0.02, 7)) > 1000);
    }
    check(&path, 1, Lose::CongestionExperienced);
}

#[test]
fn a_truncated_capture_is_reported_up_to_its_last_whole_packet() {
    let whole = made_up(3000);
    let cut = whole.with_extension("cut.pcap");
    let out = whole.with_extension("jsonl");
    let bytes = fs::read(&whole).unwrap();
    // The file header, 2000 records of 16 + 42 bytes, and half of another.
    fs::write(&cut, &bytes[..24 + 2000 * 58 + 30]).unwrap();
    assert!(!replay::run(&cut, &out, setup(1), Lose::Nothing).unwrap());
    let packets: u64 = fs::read_to_string(&out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<EpochReport>(line).unwrap())
        .map(|report| report.edges[0].packets_in.unwrap())
        .sum();
    assert_eq!(packets, 2000);

    let foreign = whole.with_extension("txt");
    fs::write(&foreign, "no capture at all, but long enough to look at").unwrap();
    let error = replay::run(&foreign, &out, setup(1), Lose::Nothing).unwrap_err();
    assert!(format!("{error:#}").contains(&foreign.display().to_string()));
    for path in [whole, cut, out, foreign] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_long_silence_is_skipped_and_two_replays_are_alike() {
    let frame = {
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1]);
        frame.extend_from_slice(&[10, 200, 0, 1, 0x30, 0x39, 0, 80, 0, 8, 0, 0]);
        frame
    };
    let reports = || {
        let mut replay = Replay::new(setup(1), Lose::Nothing);
        let mut reports = Vec::new();
        for second in [0, 1, 3600, 3600] {
            let time = (1000 + second) * 1_000_000_000;
            reports.extend(replay.packet(time, frame.len(), &frame).unwrap());
        }
        reports.extend(replay.finish().unwrap());
        reports
    };
    let epochs: Vec<u64> = reports().iter().map(|report| report.epoch).collect();
    assert_eq!(epochs, (20_000..=20_020).chain([92_000]).collect::<Vec<_>>());
    assert_eq!(reports(), reports());
}
