//! The deployment's hash key, which may change at an epoch.

use std::sync::{Arc, PoisonError, RwLock};

use calumma_sketch::{HashFamily, HashKey};

/// Changes that are remembered: nodes hold epochs for a minute, and keys do not change so often.
const MOST_KEPT: usize = 64;

/// A key and the epochs it is for.
#[derive(Clone, Debug)]
pub struct KeyedEpochs {
    /// The first epoch that switches hash by it; they do until the next key's.
    pub from_epoch: u64,
    /// The key.
    pub key: HashKey,
    /// Its [number](HashKey::id).
    pub id: u64,
    /// The functions that are drawn from it.
    pub family: Arc<HashFamily>,
}

impl KeyedEpochs {
    fn new(from_epoch: u64, key: HashKey) -> Arc<Self> {
        let family = Arc::new(HashFamily::new(&key));
        Arc::new(Self { from_epoch, key, id: key.id(), family })
    }
}

/// Which key switches hash by in which epoch. Copies share what they hold.
#[derive(Clone, Debug)]
pub struct HashKeys(Arc<RwLock<Vec<Arc<KeyedEpochs>>>>);

impl HashKeys {
    /// One key for all epochs.
    pub fn new(key: HashKey) -> Self {
        Self(Arc::new(RwLock::new(vec![KeyedEpochs::new(0, key)])))
    }

    /// Lets a key hold from `epoch` on, in place of all that were to hold from then on or later.
    pub fn change(&self, epoch: u64, key: HashKey) {
        let new = KeyedEpochs::new(epoch, key);
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|of| of.from_epoch < epoch);
        if keys.len() == MOST_KEPT {
            keys.remove(0);
        }
        keys.push(new);
    }

    /// The key of an epoch. Of one so long ago that it is forgotten, the oldest there is.
    pub fn at(&self, epoch: u64) -> Arc<KeyedEpochs> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let at = keys.partition_point(|of| of.from_epoch <= epoch);
        keys[at.saturating_sub(1)].clone()
    }

    /// The key that came last.
    pub fn newest(&self) -> Arc<KeyedEpochs> {
        self.at(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_has_the_key_that_was_changed_to_last_before_it() {
        let [one, two, three] = [1, 2, 3].map(|byte| HashKey::from_bytes([byte; 32]));
        let keys = HashKeys::new(one);
        let copy = keys.clone();
        keys.change(10, two);
        keys.change(20, three);
        let of = |epoch| copy.at(epoch).key;
        assert_eq!([0, 9, 10, 19, 20, 21].map(of), [one, one, two, two, three, three]);
        assert_eq!((copy.newest().from_epoch, copy.newest().id), (20, three.id()));
        assert!(copy.at(9).family.is_same(&HashFamily::new(&one)));

        // Too late for what was planned: the newest decision stands.
        keys.change(5, three);
        assert_eq!([4, 5, 10, 20].map(|epoch| copy.at(epoch).key), [one, three, three, three]);
    }
}
