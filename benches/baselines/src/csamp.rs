//! cSamp (Sekar and others, NSDI 2008): a controller that knows how many flows take each way gives
//! every switch a range of hashes for each way, so that no two count the same flow and none more
//! than it has room for.
//!
//! Of the paper's two objectives this is the second, the most flows in all; the first, a least
//! share for every pair of ends, costs some of them. Its linear program is a maximum flow then
//! ([`calumma_topology::optimum`]). A switch must know a packet's way, which cSamp has the first
//! one write into it.

use std::collections::BTreeMap;

use calumma_topology::optimum::assignment;

/// The ranges of all switches, for one window.
#[derive(Clone, Debug, Default)]
pub struct CSamp {
    /// For each way, its switches in rising order, which of them count flows up to which hash.
    manifests: BTreeMap<Vec<usize>, Vec<(usize, u64)>>,
}

impl CSamp {
    /// Ranges for a window in which so many flows take each way and each switch has so many
    /// entries. Where flows were counted one window ago, they fit that window.
    pub fn new(ways: &BTreeMap<Vec<usize>, u64>, entries: &[u64]) -> Self {
        let mut flows: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
        for (way, number) in ways {
            let mut way = way.clone();
            way.sort_unstable();
            *flows.entry(way).or_insert(0) += number;
        }
        let manifest = |(way, shares): (Vec<usize>, Vec<(usize, u64)>)| {
            let all = u128::from(flows.get(&way).copied().unwrap_or(0).max(1));
            let mut up_to = 0;
            let ends = shares.into_iter().map(|(switch, flows)| {
                up_to += u128::from(flows);
                (switch, ((up_to << 32) / all) as u64)
            });
            let ends = ends.collect();
            (way, ends)
        };
        Self { manifests: assignment(ways, entries).into_iter().map(manifest).collect() }
    }

    /// The switch that counts a flow of this hash on a way whose switches are in rising order; none
    /// where there is no room for it, or no flow took that way when the ranges were made.
    pub fn counts(&self, way: &[usize], hash: u32) -> Option<usize> {
        let ends = self.manifests.get(way)?;
        ends.iter().find(|&&(_, end)| u64::from(hash) < end).map(|&(switch, _)| switch)
    }

    /// Bytes of the ranges that a switch must have: for every way on which it counts, the number of
    /// the way and the ends of the range.
    pub fn bytes(&self, switch: usize) -> usize {
        const RANGE: usize = 12;
        let of_it = |ends: &&Vec<(usize, u64)>| ends.iter().any(|&(at, _)| at == switch);
        self.manifests.values().filter(of_it).count() * RANGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_on_a_way_share_its_hashes_as_they_have_room() {
        // 40 flows pass switches 1 and 0, 60 others 1 and 2. Switch 1 has room for 20 of them.
        let ways = BTreeMap::from([(vec![1, 0], 40), (vec![1, 2], 60)]);
        let ranges = CSamp::new(&ways, &[30, 20, 60]);
        let share = |way: &[usize], switch| {
            let hashes = (0..1000).map(|number| number * 4_294_967 + 7);
            hashes.filter(|&hash| ranges.counts(way, hash) == Some(switch)).count()
        };
        // All of the first way can be counted, by 0 three quarters of it; and all of the second.
        let (zero, one) = (share(&[0, 1], 0), share(&[0, 1], 1));
        assert!(zero + one == 1000 && (500..=751).contains(&zero), "{zero} {one}");
        assert_eq!(share(&[1, 2], 1) + share(&[1, 2], 2), 1000);
        let at_one = one as u64 * 40 + share(&[1, 2], 1) as u64 * 60;
        assert!(at_one <= 20_200, "{at_one} thousandths of a flow where there is room for 20");
        assert_eq!(ranges.counts(&[0, 2], 0), None, "nobody took that way");
        assert_eq!(ranges.bytes(1), 24);
    }

    #[test]
    fn what_there_is_no_room_for_is_not_counted() {
        let ranges = CSamp::new(&BTreeMap::from([(vec![0], 100)]), &[25]);
        assert_eq!(ranges.counts(&[0], (1 << 30) - 1), Some(0));
        assert_eq!(ranges.counts(&[0], 1 << 30), None);
    }
}
