//! What the residual of a window must say of the packets that a switch received.

use std::collections::HashMap;

use calumma_cfs::frames::{Entry, Residual, Window};
use calumma_plane::secret::hash_key;
use calumma_sketch::residual::{AnyResidual, Counts, network};
use calumma_sketch::{HashFamily, Key, WideKey, either};

use crate::common::secret;
use crate::model::Traffic;

/// What is in one part of a residual, by itself; `None` where that does not decode.
fn decoded<K: Key>(part: &AnyResidual<K>) -> Option<HashMap<WideKey, Counts>> {
    let family = HashFamily::new(&hash_key(&secret()));
    let of = network::decode(&family, vec![Some(part.clone())], &[], |_, nodes| nodes.push(0));
    let of = of.into_iter().next()??;
    let wide = |(key, counts): (K, Counts)| {
        let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
        (WideKey::new(src, dst, sport, dport, key.protocol()).unwrap(), counts)
    };
    of.is_complete.then(|| of.flows.into_iter().map(wide).collect())
}

/// Holds an edge's residual, and its table, against all that the switch received: together they
/// have every packet of every flow. Gives how many flows the residual has; `None` where it does not
/// decode.
pub(crate) fn check(window: &Window, traffic: &Traffic) -> Option<usize> {
    let uncounted = window.uncounted.as_ref().expect("a residual");
    either!(&uncounted.flows, residual => check_of(residual, window, traffic))
}

fn check_of<K: Key>(of: &Residual<K>, window: &Window, traffic: &Traffic) -> Option<usize> {
    let entered = decoded(of.entered.as_ref().expect("an edge"))?;
    let rest = decoded(&of.rest)?;
    let in_table: HashMap<WideKey, &Entry> =
        window.entries.iter().map(|entry| (entry.key, entry)).collect();
    let known = in_table.keys().chain(entered.keys()).chain(rest.keys());
    known.for_each(|key| assert!(traffic.contains_key(key), "{key} never came"));
    for (key, packets) in traffic {
        let table = in_table.get(key).map_or((0, 0), |entry| (entry.packets, entry.bytes));
        let [of_entered, of_rest] = [&entered, &rest].map(|part| part.get(key));
        let parts = of_entered.into_iter().chain(of_rest);
        let sum = parts.fold(table, |(packets, bytes), counts| {
            (packets + counts.packets, bytes + counts.bytes)
        });
        let bytes: u64 = packets.iter().map(|packet| packet.len).sum();
        assert_eq!(sum, (packets.len() as u64, bytes), "{key}");
        let sides = packets.iter().fold(0, |sides, packet| sides | packet.side);
        match (in_table.contains_key(key), of_entered, of_rest) {
            (true, ..) => {}
            (false, Some(_), None) => assert_eq!(sides, Entry::ENTERED),
            (false, None, Some(_)) if of.mixed == 0 && of.passed == 0 => {
                assert_eq!(sides, Entry::LEFT);
            }
            (false, None, Some(_)) if of.mixed == 0 => assert_eq!(sides & Entry::ENTERED, 0),
            (false, ..) => {}
        }
    }
    Some(entered.keys().chain(rest.keys().filter(|key| !entered.contains_key(*key))).count())
}
