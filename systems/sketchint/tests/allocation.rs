//! Nothing that runs once a packet takes memory, whatever finds no room.

#[expect(dead_code, reason = "other tests use more of it")]
mod samples;

use calumma_plane::Record;
use calumma_sketch::FlowKey;
use calumma_sketchint::plane::{Leaving, SinkWindow};
use calumma_testenv::Counting;

use samples::{clock, layout, record, stack};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn packets_take_no_memory() {
    let record = || record::<FlowKey>(layout(), Some(9));
    assert_eq!(taken_by(record()) + taken_by(record().noting()), 0);
}

/// How often memory is taken while packets are recorded.
fn taken_by(mut record: SinkWindow<FlowKey, ()>) -> usize {
    let mut taken = 0;
    for window in 0..3_u64 {
        record.begin(&(), 1000 + 20 * window);
        for burst in 0..400_u32 {
            let number = |at: u32| burst.wrapping_mul(31).wrapping_add(at * at) % 900;
            let keys: [FlowKey; 32] =
                std::array::from_fn(|at| FlowKey::from_words(number(at as u32), 1, 2, 6));
            let of = |at: u32| stack(&[(1, 100 + at * 9_000), (number(at) % 40, 20)], at == 3);
            let all: [_; 32] = std::array::from_fn(|at| of(at as u32));
            let stacks: [_; 32] = std::array::from_fn(|at| (at % 3 > 0).then_some(&all[at]));
            let polled_ns = clock().start_of(1000);
            let leaving = Leaving { keys: &keys, hashes: None, polled_ns };
            taken += Counting::during(|| {
                record.record(&leaving, &stacks);
                record.record_own(&leaving, &[700; 32]);
            });
        }
        let totals = record.frame(0, 1).totals;
        let refused = [totals.paths_full, totals.nodes_full, totals.keys_full, totals.rows_evicted];
        assert!(refused.iter().all(|&refused| refused > 0), "{totals:?}");
        record.clear();
    }
    taken
}

#[test]
fn the_count_sees_what_does_take_memory() {
    assert_eq!(Counting::during(|| drop(vec![1])), 1);
}
