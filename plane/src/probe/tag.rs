//! The tag by which an edge knows a probe.

use calumma_wire::Secret;
use rand_chacha::rand_core::RngCore;

use crate::carrier::{key_stream, product};

/// Words of 32 bits that a tag is of.
const WORDS: usize = 8;

/// First words of the nonces of pads and of factors; signatures of marks have 1 and 2.
const PADS_NONCE: u32 = 3;
const FACTORS_NONCE: u32 = 4;

/// What tags are made of, drawn from the deployment's secret.
///
/// A tag is two strongly universal sums over the payload's words, as a mark's signature is one, of
/// 32 bits each, under a pad that no other probe has. So a payload that was made without the key
/// has the right tag with probability 2^-64, however many probes somebody has seen.
#[derive(Clone)]
pub struct ProbeKey {
    secret: Secret,
    factors: [[u64; WORDS]; 2],
}

impl ProbeKey {
    /// The key of a deployment.
    pub fn new(secret: Secret) -> Self {
        let mut stream = key_stream(secret, FACTORS_NONCE, 0);
        let factors = std::array::from_fn(|_| std::array::from_fn(|_| stream.next_u64()));
        Self { secret, factors }
    }

    /// The tag of `bytes`, 32 of them, in the probe of this number.
    pub(super) fn tag(&self, number: u64, bytes: &[u8]) -> u64 {
        let mut words = [0_u64; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes).into();
        }
        let mut pads = key_stream(self.secret, PADS_NONCE, number);
        self.factors.iter().fold(0, |tag, factors| {
            let pairs = words.as_chunks::<2>().0.iter().zip(factors.as_chunks::<2>().0);
            let products = pairs.map(|(words, factors)| product(*factors, *words));
            let sum = products.fold(pads.next_u64(), u64::wrapping_add);
            tag << 32 | sum >> 32
        })
    }
}

impl std::fmt::Debug for ProbeKey {
    /// Prints no secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProbeKey(..)")
    }
}
