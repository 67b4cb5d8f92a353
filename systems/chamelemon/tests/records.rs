//! What an edge records beside its sketches accounts for every packet that leaves the network.

use std::collections::BTreeMap;

use calumma_chamelemon::frames::{Late, SessionPlan};
use calumma_chamelemon::lcores::{LcoreGroups, Part};
use calumma_chamelemon::{Attention, Hierarchy, Layout, Partition, SampleRate};
use calumma_epoch::{EpochClock, Guards, timestamp_bit};
use calumma_plane::carrier::{Carrier, Shim};
use calumma_plane::packet::Frame;
use calumma_plane::strays::Strays;
use calumma_plane::worker::{Policy, Worker};
use calumma_plane::{Counters, Mark, MarkedRun, Measurement, Run, UNDATED};
use calumma_sketch::{FlowKey, HashKey, Key, KeyKind, WideKey};
use proptest::prelude::*;

const EPOCH_NS: u64 = 50_000_000;
const FIRST: u64 = 100;
const LCORES: usize = 2;

fn plan(keys: KeyKind) -> SessionPlan {
    // Room for 16 flows that no bucket holds.
    let layout = Layout { keys, upstream_buckets: 64, downstream_buckets: 32, ..Layout::default() };
    // Sampled LL candidates have no buckets.
    let partition = Partition { hh: 32, hl: 32, ll: 0 };
    let attention = Attention { t_h: 2, t_l: 1, sample_rate: SampleRate::ALL, partition };
    let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
    SessionPlan {
        layout,
        hash_key: HashKey::from_bytes([7; 32]),
        clock,
        first_epoch: FIRST,
        attention,
    }
}

fn key<K: Key>(flow: u8) -> K {
    let addresses = ([10, 0, 0, flow].into(), [10, 200, 0, 1].into());
    K::new(addresses.0, addresses.1, 12_345, 80, 17).unwrap()
}

/// A UDP packet of a flow with a mark in a shim, or none.
fn frame(flow: u8, mark: Option<u8>) -> Frame {
    let mut bytes = vec![0; 12];
    if let Some(bits) = mark {
        bytes.extend([0x88, 0xB5, 0xCA, bits << 5 | 1]);
    }
    bytes.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend([10, 0, 0, flow, 10, 200, 0, 1, 0x30, 0x39, 0, 80, 0, 8, 0, 0]);
    Frame::new(bytes)
}

/// A burst that leaves, and how long after the one before.
#[derive(Clone, Debug)]
struct Burst {
    after_ns: u64,
    drained: bool,
    lcore: usize,
    packets: Vec<(u8, Option<u8>)>,
    /// Whether it leaves as runs.
    runs: bool,
}

fn burst() -> impl Strategy<Value = Burst> {
    // Nearly two epochs may pass on an lcore that stands still.
    let after_ns = prop_oneof![0u64..3_000_000, 0u64..90_000_000];
    let mark = prop_oneof![1 => Just(None), 8 => (0u8..8).prop_map(Some)];
    let packets = prop_oneof![
        prop::collection::vec((0u8..30, mark.clone()), 0..=32),
        (0u8..30, mark, 0usize..=32).prop_map(|(flow, mark, packets)| vec![(flow, mark); packets]),
    ];
    (after_ns, any::<bool>(), 0..LCORES, packets, any::<bool>()).prop_map(
        |(after_ns, drained, lcore, packets, runs)| Burst {
            after_ns,
            drained,
            lcore,
            packets,
            runs,
        },
    )
}

/// Packets of one timestamp bit, by flow and hierarchy.
type ByFlow<K> = BTreeMap<(K, Hierarchy), u64>;

/// All that was recorded of packets with one timestamp bit.
#[derive(Debug)]
struct Recorded<K> {
    packets: u64,
    by_hierarchy: [u64; 4],
    misfits: u64,
    late: ByFlow<K>,
    late_beyond: u64,
    late_unencoded: u64,
}

impl<K> Recorded<K> {
    fn nothing() -> Self {
        Self {
            packets: 0,
            by_hierarchy: [0; 4],
            misfits: 0,
            late: ByFlow::new(),
            late_beyond: 0,
            late_unencoded: 0,
        }
    }
}

fn add<K: Key>(sum: &mut ByFlow<K>, strays: &Strays<K>) {
    for stray in &strays.entries {
        *sum.entry((stray.key, stray.hierarchy)).or_default() += u64::from(stray.packets);
    }
}

/// Packets of hierarchy 0 in a table.
fn unencoded<K: Key>(strays: &Strays<K>) -> u64 {
    let of_it = strays.entries.iter().filter(|stray| stray.hierarchy == Hierarchy::NonSampledLl);
    of_it.map(|stray| u64::from(stray.packets)).sum()
}

/// Lets bursts leave by shims, shows `see` all that is finished, and gives the lcores.
fn play<K: Key>(bursts: &[Burst], see: impl FnMut(&Part)) -> Vec<Worker> {
    let carrier = Carrier::Shim(Shim::default());
    play_by::<K>(carrier, bursts, |&(flow, mark), _| frame(flow, mark), see)
}

/// The same by any carrier; `frame` gives a packet that leaves at a time.
fn play_by<K: Key>(
    carrier: Carrier,
    bursts: &[Burst],
    frame: impl Fn(&(u8, Option<u8>), u64) -> Frame,
    mut see: impl FnMut(&Part),
) -> Vec<Worker> {
    let plan = plan(K::KIND);
    let (mut groups, mailboxes) = LcoreGroups::new(LCORES);
    groups.begin(&plan).unwrap();
    let policy = Policy { carrier, ..Policy::default() };
    let worker = |mailbox| Worker::new(policy, Measurement::new(mailbox));
    let mut workers: Vec<Worker> = mailboxes.into_iter().map(worker).collect();
    let mut poll = |groups: &mut LcoreGroups| {
        for part in groups.poll() {
            see(&part);
            match part {
                Part::Ingress { record, .. } => groups.recycle(record),
                Part::Egress { record, .. } => groups.recycle(record),
                Part::Sealed { .. } => {}
            }
        }
    };

    let mut now_ns = plan.clock.start_of(FIRST - 1);
    while now_ns < plan.clock.start_of(FIRST + 1) + EPOCH_NS / 2 {
        now_ns += 1_000_000;
        workers.iter_mut().for_each(|worker| worker.advance_to(now_ns));
        poll(&mut groups);
    }
    for burst in bursts {
        now_ns += burst.after_ns;
        for worker in &mut workers {
            worker.tick(now_ns, burst.drained);
        }
        poll(&mut groups);
        let worker = &mut workers[burst.lcore];
        let mut packets: Vec<Frame> =
            burst.packets.iter().map(|packet| frame(packet, now_ns)).collect();
        if burst.runs && burst.packets.iter().all(|(_, mark)| mark.is_some()) {
            for &(flow, mark) in &burst.packets {
                let Some(Mark { bit, hierarchy, .. }) = mark.map(Mark::from_bits) else { continue };
                let run = Run::single(hierarchy);
                worker.leave_run(&key::<K>(flow), MarkedRun { bit, run });
            }
        } else {
            worker.egress(&mut packets);
        }
    }
    for _ in 0..400 {
        now_ns += 1_000_000;
        workers.iter_mut().for_each(|worker| worker.advance_to(now_ns));
        poll(&mut groups);
    }
    workers
}

/// Lets bursts leave; checks, for each bit, that all packets with a mark are recorded, or late.
fn check<K: Key>(bursts: &[Burst]) -> Result<(), TestCaseError> {
    let mut recorded = [(); 2].map(|()| Recorded::<K>::nothing());
    let mut misfits = ByFlow::new();
    let mut unmarked: ByFlow<K> = ByFlow::new();
    let (mut misfits_beyond, mut unmarked_beyond) = (0, 0);
    let workers = play::<K>(bursts, |part| match part {
        Part::Ingress { .. } => {}
        Part::Egress { epoch, record, mixed_attention } => {
            assert!(!mixed_attention);
            let group = record.group.get::<K>().unwrap();
            let of = &mut recorded[timestamp_bit(*epoch)];
            of.packets += record.packets;
            of.misfits += record.foreign_packets;
            for (sum, packets) in of.by_hierarchy.iter_mut().zip(group.balance().counts()) {
                *sum += packets;
            }
            let strays = group.strays();
            let unencoded = unencoded(&strays);
            assert_eq!(strays.packets() - unencoded, record.foreign_packets);
            assert!(unencoded <= group.balance().of(Hierarchy::NonSampledLl));
            add(&mut misfits, &strays);
            misfits_beyond += strays.beyond;
            add(&mut unmarked, &group.unmarked());
            unmarked_beyond += group.unmarked().beyond;
        }
        Part::Sealed { epoch, late_packets, late } => {
            let of = &mut recorded[timestamp_bit(*epoch)];
            let Late { unencoded, strays } = late.get::<K>().unwrap();
            assert_eq!(strays.packets() - self::unencoded(strays), *late_packets);
            add(&mut of.late, strays);
            of.late_beyond += strays.beyond;
            of.late_unencoded += unencoded;
        }
    });

    let mut sent = [(); 2].map(|()| ByFlow::<K>::new());
    let mut sent_unmarked = ByFlow::<K>::new();
    for &(flow, mark) in bursts.iter().flat_map(|burst| &burst.packets) {
        let mark = mark.map(Mark::from_bits);
        let hierarchy = mark.map_or(Hierarchy::NonSampledLl, |mark| mark.hierarchy);
        let name = (key(flow), hierarchy);
        match mark {
            Some(mark) => *sent[mark.bit].entry(name).or_default() += 1,
            None => *sent_unmarked.entry(name).or_default() += 1,
        }
    }

    for (sent, of) in sent.iter().zip(&recorded) {
        prop_assert_eq!(of.by_hierarchy.iter().sum::<u64>(), of.packets);
        let late = of.late.values().sum::<u64>() + of.late_beyond + of.late_unencoded;
        prop_assert_eq!(of.packets + late, sent.values().sum::<u64>());
        for (name, packets) in &of.late {
            prop_assert!(sent.get(name).is_some_and(|sent| packets <= sent));
        }
        // Each hierarchy alone: what was recorded, and what was late by flow.
        for hierarchy in (1..4).map(Hierarchy::from_bits) {
            let of_it = |of: &ByFlow<K>| -> u64 {
                of.iter().filter(|((_, it), _)| *it == hierarchy).map(|(_, packets)| packets).sum()
            };
            let known = of.by_hierarchy[usize::from(hierarchy.bits())] + of_it(&of.late);
            let all = of_it(sent);
            prop_assert!(known <= all && all <= known + of.late_beyond);
        }
        prop_assert_eq!(of.misfits, of.by_hierarchy[1], "sampled LL candidates have no buckets");
    }
    let counted = |counter: fn(&Counters) -> u64| -> u64 {
        workers.iter().map(|worker| counter(&worker.counters)).sum()
    };
    // All packets are encoded, so none has hierarchy 0 either.
    let misfitting = recorded.iter().map(|of| of.misfits + of.by_hierarchy[0]).sum::<u64>();
    prop_assert_eq!(counted(|of| of.egress_foreign), misfitting);
    prop_assert_eq!(counted(|of| of.egress_unmarked), sent_unmarked.values().sum::<u64>());
    // A flow is counted as a whole, or beyond: where nothing is, every flow is exact.
    let misfit = [Hierarchy::NonSampledLl, Hierarchy::SampledLl];
    prop_assert!(misfits.keys().all(|(_, hierarchy)| misfit.contains(hierarchy)));
    let of_unmarked = unmarked.values().sum::<u64>() + unmarked_beyond;
    // One may be of either epoch of which packets may come, and is kept with both.
    let all_unmarked = sent_unmarked.values().sum::<u64>();
    prop_assert!(of_unmarked <= 2 * all_unmarked);
    prop_assert!(unmarked.iter().all(|(name, packets)| *packets <= 2 * sent_unmarked[name]));
    if recorded.iter().all(|of| of.late.is_empty() && of.late_beyond + of.late_unencoded == 0) {
        let mut all = ByFlow::new();
        for sent in &sent {
            let of_it = sent.iter().filter(|((_, it), _)| misfit.contains(it));
            of_it.for_each(|(name, packets)| *all.entry(*name).or_default() += packets);
        }
        prop_assert!(misfits.iter().all(|(name, packets)| packets <= &all[name]));
        let kept = |hierarchy| move |((_, it), _): &(&(K, Hierarchy), &u64)| *it == hierarchy;
        let of_all = |of: &ByFlow<K>, it| of.iter().filter(kept(it)).map(|(_, n)| n).sum::<u64>();
        // An entry of hierarchy 0 has all its packets or none, and only those beyond are missing.
        let it = Hierarchy::SampledLl;
        let are_all_kept = of_all(&misfits, it) == of_all(&all, it);
        prop_assert!(misfits_beyond > 0 || are_all_kept);
        prop_assert!(of_unmarked >= all_unmarked);
    }
    Ok(())
}

/// What is known of the packets of an epoch in two ways, by flow.
#[derive(Debug, Default, PartialEq)]
struct Twice<K> {
    unmarked: BTreeMap<K, u32>,
    marked: BTreeMap<K, u32>,
}

/// Lets flows leave; checks that packets without a mark are kept with each epoch of which packets
/// that have one, and leave beside them, are recorded.
fn check_unmarked<K: Key>(flows: &[(u64, bool, usize, Vec<u8>)]) -> Result<(), TestCaseError> {
    // Sampled LL candidates, which have no buckets and so are kept by flow.
    let [even, odd] = [0b001, 0b101];
    let bursts = flows.iter().map(|(after_ns, drained, lcore, flows)| Burst {
        after_ns: *after_ns,
        drained: *drained,
        lcore: *lcore,
        packets: flows
            .iter()
            .flat_map(|&flow| [None, Some(even), Some(odd)].map(|mark| (flow, mark)))
            .collect(),
        runs: false,
    });
    let bursts: Vec<Burst> = bursts.collect();
    let mut epochs: BTreeMap<u64, Twice<K>> = BTreeMap::new();
    play::<K>(&bursts, |part| {
        let Part::Egress { epoch, record, .. } = part else { return };
        let group = record.group.get::<K>().unwrap();
        let of = epochs.entry(*epoch).or_default();
        for (kept, sum) in [(group.unmarked(), &mut of.unmarked), (group.strays(), &mut of.marked)]
        {
            assert_eq!(kept.beyond, 0, "there is room for all flows");
            kept.entries.iter().for_each(|of| *sum.entry(of.key).or_default() += of.packets);
        }
    });
    for (epoch, of) in epochs {
        prop_assert_eq!(&of.unmarked, &of.marked, "epoch {}", epoch);
    }
    Ok(())
}

/// A packet of a flow, whose identification has these fields and no right signature.
fn unsigned(flow: u8, fields: u8) -> Frame {
    let mut bytes = vec![0; 12];
    bytes.extend([8, 0, 0x45, 0, 0, 28, fields, 0x5C, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend([10, 0, 0, flow, 10, 200, 0, 1, 0x30, 0x39, 0, 80, 0, 8, 0, 0]);
    Frame::new(bytes)
}

/// What a packet without a valid mark says of its epoch is kept once, with that epoch where it is
/// open; not where it says a hierarchy that is encoded nowhere, or what no mark says.
#[test]
fn what_a_packet_without_a_mark_says_is_kept_once() {
    let clock = plan(KeyKind::Ipv4).clock;
    // Flow 8 says what no mark does; the others say how old they are, and flow 9 hierarchy 0.
    let frame = |&(flow, _): &(u8, Option<u8>), now_ns| {
        let epoch = clock.epoch_at(now_ns) as u8;
        let says = epoch.wrapping_sub(flow % 8) << 5 | if flow == 9 { 0 } else { 0b10 << 3 };
        unsigned(flow, if flow == 8 { says | 1 } else { says })
    };
    let (times, mut ages) = (200, BTreeMap::<(u8, u8), u32>::new());
    for flow in 0..10 {
        let see = |part: &Part| {
            let Part::Egress { record, .. } = part else { return };
            let kept = record.group.get::<FlowKey>().unwrap().unmarked();
            assert_eq!(kept.beyond, 0);
            for stray in kept.entries {
                assert_eq!(stray.key, key(flow));
                *ages.entry((flow, stray.epochs_back)).or_default() += stray.packets;
            }
        };
        let (packets, runs) = (vec![(flow, None)], false);
        let burst = Burst { after_ns: 1_000_000, drained: true, lcore: 0, packets, runs };
        let workers = play_by::<FlowKey>(Carrier::IpId, &vec![burst; times], frame, see);
        assert_eq!(workers[0].counters.egress_unmarked, times as u64, "none is right by chance");
    }
    let of = |flow: u8, age: u8| ages.get(&(flow, age)).copied().unwrap_or(0);
    for flow in 0..10 {
        let all: u32 = (0..=u8::MAX).map(|age| of(flow, age)).sum();
        let said = all - of(flow, UNDATED);
        assert_eq!(said as usize, if flow < 8 { times } else { 0 });
        assert!(all as usize > times, "those around a flip are kept with two epochs");
    }
    // Of the epoch that runs, and of the one before as long as it is open.
    assert_eq!(of(0, 0) as usize, times);
    assert!(of(1, 0) > 0 && of(1, 1) > 0 && of(1, 2) > 0, "{ages:?}");
    // Others are as old as they say, or a little less than the next epoch, which is open by then.
    let old = |flow: u8| of(flow, flow) > 0 && of(flow, flow) + of(flow, (flow + 1) % 8) == 200;
    assert!((2..8).all(old), "{ages:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_packet_with_a_mark_is_recorded_or_late(
        bursts in prop::collection::vec(burst(), 1..60),
        dual: bool,
    ) {
        if dual { check::<WideKey>(&bursts)? } else { check::<FlowKey>(&bursts)? }
    }

    #[test]
    fn a_packet_without_a_mark_is_kept_with_each_epoch_of_which_packets_may_come(
        flows in prop::collection::vec(
            (
                prop_oneof![0u64..3_000_000, 0u64..90_000_000],
                any::<bool>(),
                0..LCORES,
                prop::collection::vec(0u8..16, 0..=10),
            ),
            1..60,
        ),
        dual: bool,
    ) {
        if dual { check_unmarked::<WideKey>(&flows)? } else { check_unmarked::<FlowKey>(&flows)? }
    }
}
