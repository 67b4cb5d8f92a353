//! Hashes that several systems of a session have in common, so that they are computed once.

use calumma_sketch::Key;

use super::{MOST_SYSTEMS, Running};

/// Lets systems that hash by the same functions share the hashes; gives the first of them.
pub(super) fn share_hashes<K: Key>(recording: &mut [Running<K>]) -> Option<usize> {
    let same =
        |one: &Running<K>, other: &Running<K>| match (one.half.hashes_by(), other.half.hashes_by())
        {
            (Some(one), Some(other)) => one.is_same(other),
            _ => false,
        };
    let has_peer = |at: &usize| {
        let (_, others) = recording.split_at(at + 1);
        others.iter().any(|other| same(&recording[*at], other))
    };
    let first = (0..recording.len()).find(has_peer);
    // Each is asked of the first one, before any is changed.
    let mut shared = [false; MOST_SYSTEMS];
    if let Some(first) = first {
        for (shared, system) in shared.iter_mut().zip(&*recording) {
            *shared = same(&recording[first], system);
        }
    }
    for (system, shared) in recording.iter_mut().zip(shared) {
        system.half.share_hashes(shared);
    }
    first
}
