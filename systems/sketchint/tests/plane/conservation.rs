//! No stack comes out of nowhere, and none is left behind: at every moment, as many as were put in
//! were taken out, or lost with their packets, or are on their way.

use calumma_plane::packet::{Frame, Packet};
use calumma_plane::worker::Path;
use calumma_sketchint::frames::Step;
use proptest::prelude::*;

use super::{FIRST_EPOCH, Network, STAYS_NS, WINDOW, middle, packet, setup};

/// What becomes of a packet behind a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    /// It waits on the link until other packets come.
    Waits,
    GoesOn,
}

/// A packet's flow, its length, and what becomes of it behind the source and the next switch.
type Sent = (u16, usize, [Fate; 2]);

fn sent() -> impl Strategy<Value = Sent> {
    let fate =
        || prop_oneof![1 => Just(Fate::Lost), 1 => Just(Fate::Waits), 4 => Just(Fate::GoesOn)];
    (0..12_u16, 20..1440_usize, [fate(), fate()])
}

/// A packet on its way, and whether it had a stack when it was sent last.
struct OnItsWay {
    frame: Frame,
    fates: [Fate; 2],
    len: usize,
}

impl OnItsWay {
    fn has_stack(&self) -> bool {
        self.frame.bytes().len() > self.len
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn stacks_are_taken_out_or_lost_or_on_their_way(
        rounds in prop::collection::vec(prop::collection::vec(sent(), 0..12), 1..12),
        mtus in prop::collection::vec(prop::sample::select(vec![70_u16, 300, 1500]), 2),
        begins in 0..2 * WINDOW,
    ) {
        let mut network = Network::new(setup(), Step::Transits);
        (network.0[0].mtu, network.0[1].mtu) = (mtus[0], mtus[1]);
        network.reconfigure(FIRST_EPOCH + begins, Step::Sources);
        let (mut links, mut lost) = ([Vec::new(), Vec::new()], 0);
        for (epoch, packets) in (FIRST_EPOCH..).zip(rounds) {
            let enter = |&(flow, payload, fates): &Sent| {
                let bytes = packet(flow, [17, 6, 89][usize::from(flow % 3)], payload);
                OnItsWay { frame: Frame::with_headroom(256, &bytes), fates, len: bytes.len() }
            };
            let mut coming: Vec<OnItsWay> = packets.iter().map(enter).collect();
            let paths = [Path::Enter, Path::Transit, Path::Leave];
            for (at, (switch, path)) in network.0.iter_mut().zip(paths).enumerate() {
                let mut frames: Vec<Frame> = coming.iter().map(|of| of.frame.clone()).collect();
                let now_ns = middle(epoch) + 100_000 * at as u64;
                for burst in frames.chunks_mut(16) {
                    switch.pass(path, burst, now_ns, STAYS_NS[at]);
                }
                coming.iter_mut().zip(frames).for_each(|(of, frame)| of.frame = frame);
                let Some(link) = links.get_mut(at) else {
                    prop_assert!(coming.iter().all(|of| !of.has_stack()));
                    break;
                };
                // Those that waited go on behind others that came now.
                let waited = std::mem::take(link);
                let (going, others): (Vec<_>, Vec<_>) =
                    coming.into_iter().partition(|of| of.fates[at] == Fate::GoesOn);
                for of in others {
                    match of.fates[at] {
                        Fate::Lost => lost += u64::from(of.has_stack()),
                        _ => link.push(of),
                    }
                }
                coming = going.into_iter().chain(waited).collect();
            }
            let on_their_way = links.iter().flatten().filter(|of| of.has_stack()).count() as u64;
            let counters = network.0.each_ref().map(|switch| switch.worker.counters.int);
            let [source, between, sink] = &counters;
            prop_assert_eq!(source.inserted, sink.stripped + lost + on_their_way);
            prop_assert_eq!((between.inserted, between.stripped, sink.inserted), (0, 0, 0));
            prop_assert_eq!((source.stripped, sink.dropped(), sink.malformed), (0, 0, 0));
        }
        // What windows say adds up to what was counted, but for what came late.
        let end = middle(FIRST_EPOCH + 5 * WINDOW);
        network.0.iter_mut().for_each(|of| of.advance_to(end));
        let [source, _, sink] = &network.0;
        let inserted: u64 = source.entered.values().map(|of| of.inserted).sum();
        prop_assert_eq!(inserted, source.worker.counters.int.inserted);
        let recorded: u64 = sink.windows.values().map(|of| of.totals.int_packets).sum();
        let stripped = sink.worker.counters.int.stripped;
        let late: u64 = sink.late.values().sum();
        prop_assert!(recorded <= stripped && recorded + late >= stripped);
    }
}
