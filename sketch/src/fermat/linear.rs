//! A bucket as linear equations in the packets of the flows that may be in it.
//!
//! Every word of a bucket is the sum, over its flows, of the flow's word times its packets: modulo
//! the prime in prime arithmetic (five equations, or eleven for wide keys), modulo 2^32 in wrapping
//! arithmetic (eight).

use super::bucket::Lanes;
use super::summed::Summed;
use super::{Arithmetic, prime, wrapping};

/// Most flows that a bucket is solved for: one less than it has words, so that an equation is over
/// to check the solution with.
pub(super) const MOST_FLOWS: usize = 10;

/// Packets of each flow of a bucket.
pub(super) type Flows = [i32; MOST_FLOWS];

/// The packets of each of the flows whose `units` are given, if together they and no others make up
/// `bucket`: `None` where several solutions are possible, where a flow would have packets of the
/// other sign than the bucket, or more than it, and where an equation is left that does not hold.
///
/// `WORDS` is no less than a bucket of these keys has in any arithmetic. About 150 ns for two flows
/// in prime arithmetic.
pub(super) fn solve<K: Summed, const WORDS: usize>(
    arithmetic: Arithmetic,
    bucket: &K::Bucket,
    units: &[K::Bucket],
) -> Option<Flows> {
    match arithmetic {
        Arithmetic::Prime => solve_in::<Prime, K, WORDS>(arithmetic, bucket, units),
        Arithmetic::Wrapping => solve_in::<Wrapping, K, WORDS>(arithmetic, bucket, units),
    }
}

/// The numbers that an equation is about.
trait Ring {
    /// Zero bits at the end of a divisor, each of which costs one of the quotient; 32 for zero.
    fn order(a: u32) -> u32;
    /// `a b - c d`.
    fn cross(a: u32, b: u32, c: u32, d: u32) -> u32;
    /// The smallest number whose product with `b` is `a`; the order of `a` is no less than that of
    /// `b`.
    fn quotient(a: u32, b: u32) -> u32;
    /// Numbers x, not 0, and y such that `x cell - y pivot` is 0.
    fn cancelling(cell: u32, pivot: u32) -> (u32, u32);
}

struct Prime;

impl Ring for Prime {
    fn order(a: u32) -> u32 {
        if a == 0 { 32 } else { 0 }
    }

    fn cross(a: u32, b: u32, c: u32, d: u32) -> u32 {
        prime::cross(a, b, c, d)
    }

    fn quotient(a: u32, b: u32) -> u32 {
        prime::quotient(a, b)
    }

    /// Without a division: most systems turn out to have no solution.
    fn cancelling(cell: u32, pivot: u32) -> (u32, u32) {
        (pivot, cell)
    }
}

struct Wrapping;

impl Ring for Wrapping {
    fn order(a: u32) -> u32 {
        a.trailing_zeros()
    }

    fn cross(a: u32, b: u32, c: u32, d: u32) -> u32 {
        a.wrapping_mul(b).wrapping_sub(c.wrapping_mul(d))
    }

    fn quotient(a: u32, b: u32) -> u32 {
        wrapping::quotient(a, b)
    }

    /// An even factor would lose bits of the cell.
    fn cancelling(cell: u32, pivot: u32) -> (u32, u32) {
        (1, wrapping::quotient(cell, pivot))
    }
}

fn solve_in<R: Ring, K: Summed, const WORDS: usize>(
    arithmetic: Arithmetic,
    bucket: &K::Bucket,
    units: &[K::Bucket],
) -> Option<Flows> {
    // A bucket of packets that are missing is solved with its sign changed.
    let positive = bucket.count() > 0;
    let bucket =
        if positive { *bucket } else { K::subtract(arithmetic, &K::Bucket::default(), bucket) };
    let count = bucket.count();
    let (rows, flows) = (K::words(arithmetic), units.len());
    if count <= 0 || flows == 0 || flows >= rows {
        return None;
    }

    // One row for each word, with the word of each flow and in the last column of the bucket.
    let own = WORDS - 1;
    let mut equations = [[0; WORDS]; WORDS];
    for (row, equation) in equations[..rows].iter_mut().enumerate() {
        // The count, of which every packet adds one, comes first: the best pivot.
        let word = if row == 0 { bucket.lanes().len() - 1 } else { row - 1 };
        for (cell, unit) in equation.iter_mut().zip(units) {
            *cell = unit.lanes()[word];
        }
        equation[own] = bucket.lanes()[word];
    }
    let equations = &mut equations[..rows];
    let order = eliminate::<R, WORDS>(equations, flows)?;
    if equations[flows..].iter().any(|equation| equation[own] != 0) {
        return None;
    }

    let mut packets = Flows::default();
    for step in (0..flows).rev() {
        let equation = &equations[step];
        let rest = (step + 1..flows).fold(equation[own], |rest, later| {
            R::cross(rest, 1, equation[later], packets[order[later]] as u32)
        });
        let lost = R::order(equation[step]);
        if R::order(rest) < lost {
            return None;
        }
        let solution = R::quotient(rest, equation[step]);
        // A larger solution would be as good where the divisor lost a bit that a count may have.
        if solution > count as u32 || u64::from(count as u32) >> (32 - lost) != 0 {
            return None;
        }
        packets[order[step]] = solution as i32;
    }
    if !positive {
        packets.iter_mut().for_each(|packets| *packets = -*packets);
    }
    Some(packets)
}

/// Brings the equations into triangular form, and gives which flow each column is about then;
/// `None` where they leave a flow undecided.
fn eliminate<R: Ring, const WORDS: usize>(
    equations: &mut [[u32; WORDS]],
    flows: usize,
) -> Option<[usize; MOST_FLOWS]> {
    let mut order = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    for step in 0..flows {
        let cells = (step..equations.len()).flat_map(|row| (step..flows).map(move |at| (row, at)));
        let (mut best, mut pivot) = (32, (step, step));
        for (row, column) in cells {
            let order = R::order(equations[row][column]);
            if order < best {
                (best, pivot) = (order, (row, column));
            }
            if best == 0 {
                break;
            }
        }
        if best == 32 {
            return None;
        }
        let (row, column) = pivot;
        equations.swap(step, row);
        order.swap(step, column);
        equations.iter_mut().for_each(|equation| equation.swap(step, column));

        let (done, rest) = equations.split_at_mut(step + 1);
        let pivot = done[step];
        for equation in rest.iter_mut().filter(|equation| equation[step] != 0) {
            let (own, others) = R::cancelling(equation[step], pivot[step]);
            for column in (step..flows).chain([WORDS - 1]) {
                equation[column] = R::cross(equation[column], own, others, pivot[column]);
            }
        }
    }
    Some(order)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fermat::Bucket;
    use crate::{FlowKey, WideKey};

    fn bucket_of<K: Summed>(
        arithmetic: Arithmetic,
        units: &[K::Bucket],
        packets: &[i32],
    ) -> K::Bucket {
        units.iter().zip(packets).fold(K::Bucket::default(), |sum, (unit, &packets)| {
            let added = K::multiply(arithmetic, unit, packets);
            K::add(arithmetic, &sum, &added)
        })
    }

    fn solve(arithmetic: Arithmetic, bucket: &Bucket, units: &[Bucket]) -> Option<Flows> {
        FlowKey::solve(arithmetic, bucket, units)
    }

    fn units(arithmetic: Arithmetic, keys: &[(u32, u32, u32, u8, u32)]) -> Vec<Bucket> {
        let unit = |&(src, dst, ports, protocol, fingerprint)| {
            let key = FlowKey::from_words(src, dst, ports, protocol);
            key.unit(arithmetic, fingerprint & 0xF_FFFF)
        };
        keys.iter().map(unit).collect()
    }

    proptest! {
        #[test]
        fn what_flows_sent_is_the_only_solution(
            keys: [(u32, u32, u32, u8, u32); 7],
            packets: [u16; 7],
            flows in 1_usize..=7,
            negative: bool,
        ) {
            for arithmetic in [Arithmetic::Prime, Arithmetic::Wrapping] {
                let flows = flows.min(arithmetic.words() - 1);
                let units = &units(arithmetic, &keys)[..flows];
                let packets = packets.map(|n| if negative { -i32::from(n) } else { n.into() });
                prop_assume!(packets[..flows].iter().any(|&packets| packets != 0));
                let bucket = bucket_of::<FlowKey>(arithmetic, units, &packets);
                let solution = solve(arithmetic, &bucket, units);
                match arithmetic {
                    Arithmetic::Prime => prop_assert_eq!(&solution.unwrap()[..flows], &packets[..flows]),
                    // Even determinants can cost bits; a solution is right all the same.
                    Arithmetic::Wrapping => {
                        if let Some(solution) = solution {
                            prop_assert_eq!(&solution[..flows], &packets[..flows]);
                        }
                    }
                }
                // One more flow that no one knows of.
                let other = self::units(arithmetic, &[(9, 99, 999, 9, 9_999)])[0];
                if flows < arithmetic.words() - 1 && !negative && !units.contains(&other) {
                    let more = FlowKey::add(arithmetic, &bucket, &other);
                    prop_assert_eq!(solve(arithmetic, &more, units), None);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn up_to_ten_wide_flows_are_told_apart(
            keys: [([u32; 9], u8); 10],
            packets: [u16; 10],
            flows in 1_usize..=10,
        ) {
            prop_assume!(packets[..flows].iter().any(|&packets| packets != 0));
            let unit = |&(words, protocol): &([u32; 9], u8)| {
                WideKey::from_words(words, protocol).unit(Arithmetic::Prime, words[0] & 0x3FFF)
            };
            let units: Vec<_> = keys[..flows].iter().map(unit).collect();
            let packets = packets.map(i32::from);
            let bucket = bucket_of::<WideKey>(Arithmetic::Prime, &units, &packets);
            let solution = WideKey::solve(Arithmetic::Prime, &bucket, &units);
            prop_assert_eq!(&solution.unwrap()[..flows], &packets[..flows]);
        }
    }

    #[test]
    fn flows_that_the_words_cannot_tell_apart_stay_undecided() {
        // The third key lies half way between the others in every field, and so does its
        // fingerprint.
        let keys = [(8, 16, 4, 6, 64), (24, 48, 12, 6, 192), (16, 32, 8, 6, 128)];
        for arithmetic in [Arithmetic::Prime, Arithmetic::Wrapping] {
            let units = units(arithmetic, &keys);
            let bucket = bucket_of::<FlowKey>(arithmetic, &units, &[5, 6, 7]);
            assert_eq!(solve(arithmetic, &bucket, &units), None);
            let bucket = bucket_of::<FlowKey>(arithmetic, &units[..2], &[5, 6]);
            assert_eq!(solve(arithmetic, &bucket, &units[..2]).unwrap()[..2], [5, 6]);
        }
    }

    #[test]
    fn packets_of_both_signs_are_left_alone() {
        let keys = [(10, 20, 30, 6, 100), (39, 47, 51, 17, 333)];
        for arithmetic in [Arithmetic::Prime, Arithmetic::Wrapping] {
            let units = units(arithmetic, &keys);
            for packets in [[5, -3], [-5, 3], [5, -5]] {
                let bucket = bucket_of::<FlowKey>(arithmetic, &units, &packets);
                assert_eq!(solve(arithmetic, &bucket, &units), None);
            }
        }
    }
}
