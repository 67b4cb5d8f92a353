//! Captures through two edges in virtual time: the reports are exactly what the capture says.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use calumma_controller::analyse::Tasks;
use calumma_controller::report::{DecodeState, EpochReport};
use calumma_edge::parse::{Parsed, parse};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::tower::Level;
use calumma_sketch::{Attention, FlowKey, HashKey, Layout};
use calumma_testbed::capture::{Capture, PcapWriter};
use calumma_testbed::replay::{self, Lose, Replay, Setup};

const LENGTH_NS: u64 = 50_000_000;

/// Memory that lets all encoders decode, whatever the capture, and a classifier without collisions to
/// speak of, so that a flow is a heavy-hitter candidate from its T_h-th packet on.
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
    entered: HashMap<FlowKey, u64>,
    lost: HashMap<FlowKey, u64>,
}

/// Replays a capture, and finds out by itself what happened.
fn replay_with_truth(
    path: &Path,
    setup: Setup,
    lose: Lose,
) -> (Vec<EpochReport>, HashMap<u64, Truth>) {
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
        if let Parsed::Flow { key, ip_offset } = parse(record.bytes, wire_len) {
            *of_epoch.entered.entry(key).or_default() += 1;
            if fate.decides(record.bytes, ip_offset) {
                *of_epoch.lost.entry(key).or_default() += 1;
            }
        }
        reports.extend(replay.packet(record.timestamp_ns, wire_len, record.bytes).unwrap());
    }
    reports.extend(replay.finish().unwrap());
    (reports, truth)
}

/// Checks every epoch's losses, and the exact sizes of the flows that reached T_h.
fn check(path: &Path, t_h: u32, lose: Lose) -> u64 {
    let (reports, truth) = replay_with_truth(path, setup(t_h), lose);
    assert!(reports.len() >= truth.len(), "a report for every epoch");
    let mut lost_in_all = 0;
    for report in &reports {
        let truth = &truth[&report.epoch];
        assert!(report.complete, "{:?}", report.incomplete_because);
        assert_eq!(report.decode.hl, DecodeState::Complete);
        assert!(report.surplus.is_empty());
        let lost: HashMap<FlowKey, u64> = report
            .loss
            .iter()
            .map(|loss| (loss.flow.key::<FlowKey>().unwrap(), loss.lost))
            .collect();
        assert_eq!(lost, truth.lost, "losses of epoch {}", report.epoch);
        lost_in_all += lost.values().sum::<u64>();

        let ingress = &report.edges[0];
        assert_eq!(ingress.hh_decode, DecodeState::Complete);
        assert_eq!(ingress.packets_in, Some(truth.entered.values().sum()));
        let sizes: HashMap<FlowKey, u64> = ingress
            .heavy_hitters
            .iter()
            .map(|hitter| (hitter.flow.key::<FlowKey>().unwrap(), hitter.size))
            .collect();
        let large: HashMap<FlowKey, u64> = truth
            .entered
            .iter()
            .filter(|&(_, &size)| size >= u64::from(t_h))
            .map(|(flow, &size)| (*flow, size))
            .collect();
        let reached: HashMap<FlowKey, u64> =
            sizes.into_iter().filter(|&(_, size)| size >= u64::from(t_h)).collect();
        assert_eq!(reached, large, "sizes of epoch {}", report.epoch);
    }
    lost_in_all
}

/// A capture of `packets` packets of Zipf-like flows over a quarter of a second, every seventh with ECN
/// "congestion experienced".
fn made_up(packets: u32) -> PathBuf {
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

/// A capture of real traffic, where this machine has it.
fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not here", path.display());
    }
    path.exists().then_some(path)
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
    let Some(path) = shared("mixed-captures.pcap") else { return };
    for t_h in [1, 2, 10] {
        assert!(check(&path, t_h, Lose::share(0.02, 7)) > 5000);
    }
    check(&path, 1, Lose::CongestionExperienced);
}

#[test]
fn a_backbone_link_gives_exact_losses_and_sizes_at_every_threshold() {
    let Some(path) = shared("backbone-65k.pcap") else { return };
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
