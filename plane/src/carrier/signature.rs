//! What tells marks from the bits that hosts and routers write into the same fields.

use std::fmt;

use calumma_wire::Secret;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Epochs that three bits of their number tell apart.
const EPOCHS: usize = 8;

/// Factors: one for each word of both IPv6 addresses, and one for the protocol.
const FACTORS: usize = 9;

/// The first words of the nonces under which pads and factors are drawn from the secret; the hash
/// functions' tables have 0.
const PADS_NONCE: u32 = 1;
const FACTORS_NONCE: u32 = 2;

/// Signs the addresses and protocol of packets, under a key of its own in each epoch.
///
/// Products of sums modulo 2^64, of which the upper bits are used (Lemire and Kaser, "Strongly
/// universal string hashing is fast", 2014): without the secret a signature of n bits is guessed
/// with probability 2^-n, also by who has seen that of one other packet of the epoch. It is no
/// authentication: who sees several can compute more.
#[derive(Clone)]
pub struct Signer {
    /// What is drawn from the secret, and from the one before or after it. On the heap, since
    /// sessions are moved.
    keys: Box<[SigningKey; 2]>,
    /// Which of these is the newer one, and the first epoch that is signed by it.
    newer: (usize, u64),
    /// By epoch modulo eight: those of the last eight epochs.
    pads: [u64; EPOCHS],
    /// Which secret these are of.
    of: [u8; EPOCHS],
    /// That of the epoch to come, of which packets arrive that an edge with a fast clock has sent.
    ahead: u64,
    newest: u64,
}

/// A secret, and what addresses and protocol are multiplied by under it.
#[derive(Clone, Copy)]
struct SigningKey {
    secret: Secret,
    factors: [u64; FACTORS],
}

impl SigningKey {
    fn new(secret: Secret) -> Self {
        let mut stream = key_stream(secret, FACTORS_NONCE, 0);
        Self { secret, factors: std::array::from_fn(|_| stream.next_u64()) }
    }
}

impl fmt::Debug for Signer {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("newest", &self.newest).finish_non_exhaustive()
    }
}

impl Signer {
    /// The signer of a deployment, ready for the eight epochs up to `newest`.
    pub fn new(secret: Secret, newest: u64) -> Self {
        let mut signer = Self {
            keys: Box::new([SigningKey::new(secret); 2]),
            newer: (0, 0),
            pads: [0; EPOCHS],
            of: [0; EPOCHS],
            ahead: 0,
            newest,
        };
        signer.draw_pads(newest.saturating_sub(EPOCHS as u64 - 1));
        signer
    }

    /// Goes on to `epoch`: signatures of the epoch eight before it are not valid from here on.
    pub fn begin(&mut self, epoch: u64) {
        let follows = (self.newest + 1..=self.newest + EPOCHS as u64).contains(&epoch);
        let first = if follows { self.newest + 1 } else { (epoch + 1).saturating_sub(8) };
        self.newest = epoch;
        self.draw_pads(first);
    }

    /// Signs `epoch` and those after it by another secret. Eight epochs must have passed since the
    /// first one of the secret before: signatures by the one before that are not known any more.
    pub fn follow(&mut self, epoch: u64, secret: Secret) {
        let newer = 1 - self.newer.0;
        self.keys[newer] = SigningKey::new(secret);
        self.newer = (newer, epoch);
        self.draw_pads(epoch.max((self.newest + 1).saturating_sub(EPOCHS as u64)));
    }

    /// Which secret signs an epoch.
    fn secret_of(&self, epoch: u64) -> usize {
        let (newer, from) = self.newer;
        if epoch >= from { newer } else { 1 - newer }
    }

    fn draw_pads(&mut self, first: u64) {
        let next = self.newest + 1;
        for epoch in first..=self.newest {
            self.draw_pad(epoch);
        }
        self.ahead = self.pad(next);
        // The factors of the eighth epoch back are others: it gives way to the one to come.
        if next == self.newer.1 {
            self.draw_pad(next);
        }
    }

    fn draw_pad(&mut self, epoch: u64) {
        let at = epoch as usize % EPOCHS;
        self.pads[at] = self.pad(epoch);
        self.of[at] = self.secret_of(epoch) as u8;
    }

    fn pad(&self, epoch: u64) -> u64 {
        key_stream(self.keys[self.secret_of(epoch)].secret, PADS_NONCE, epoch).next_u64()
    }

    /// The factors of the epoch of these three bits.
    #[inline(always)]
    fn factors_of(&self, epoch: u8) -> &[u64; FACTORS] {
        &self.keys[usize::from(self.of[usize::from(epoch) % EPOCHS]) & 1].factors
    }

    /// Whether `signed` is what a header that says this epoch has as its signature; `known` says
    /// what it should be, by [`ipv4`](Self::ipv4) or [`ipv6`](Self::ipv6), and `bits` of it count.
    ///
    /// The eighth epoch back has the three bits of the one to come; either is right.
    #[inline(always)]
    pub(super) fn fits(&self, epoch: u8, known: u64, bits: u32, signed: u64) -> bool {
        let cut = |signature: u64| signature >> (u64::BITS - bits);
        let at = usize::from(epoch) % EPOCHS;
        signed == cut(known)
            || (self.newest + 1) as usize % EPOCHS == at
                && signed == cut(known.wrapping_sub(self.pads[at]).wrapping_add(self.ahead))
    }

    /// Of an IPv4 header, in the epoch of these three bits: as many of the upper bits as there is
    /// room for.
    #[inline(always)]
    pub(super) fn ipv4(&self, epoch: u8, header: &[u8; 20]) -> u64 {
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        let [source, destination] =
            [[s0, s1, s2, s3], [d0, d1, d2, d3]].map(|bytes| u64::from(u32::from_be_bytes(bytes)));
        let factors = self.factors_of(epoch);
        self.seal(epoch, header[9], product([factors[0], factors[1]], [source, destination]))
    }

    /// The same of an IPv6 header.
    #[inline(always)]
    pub(super) fn ipv6(&self, epoch: u8, header: &[u8; 40]) -> u64 {
        let (words, _) = header[8..].as_chunks::<4>();
        let word = |at: usize| u64::from(u32::from_be_bytes(words[at]));
        let factors = self.factors_of(epoch);
        let products = (0..4)
            .map(|at| product([factors[2 * at], factors[2 * at + 1]], [word(at), word(at + 4)]));
        self.seal(epoch, header[6], products.fold(0, u64::wrapping_add))
    }

    #[inline(always)]
    fn seal(&self, epoch: u8, protocol: u8, products: u64) -> u64 {
        let of_protocol = self.factors_of(epoch)[FACTORS - 1].wrapping_mul(protocol.into());
        self.pads[usize::from(epoch) % EPOCHS].wrapping_add(products).wrapping_add(of_protocol)
    }
}

/// The product of two words' sums with their factors: one term of a strongly universal sum.
#[inline(always)]
pub(crate) fn product(factors: [u64; 2], words: [u64; 2]) -> u64 {
    factors[0].wrapping_add(words[0]).wrapping_mul(factors[1].wrapping_add(words[1]))
}

/// `ChaCha20`'s key stream under the secret, with this nonce: its first word, and the other two.
pub(crate) fn key_stream(secret: Secret, first: u32, others: u64) -> ChaCha20Rng {
    // The generator counts in 64 bits what RFC 8439 has as a counter and the nonce's first word.
    const WORDS: u128 = 16;
    let mut stream = ChaCha20Rng::from_seed(secret.key);
    stream.set_stream(others);
    stream.set_word_pos((u128::from(first) << 32) * WORDS);
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(source: u32, destination: u32, protocol: u8) -> [u8; 20] {
        let mut header = [0; 20];
        header[9] = protocol;
        header[12..16].copy_from_slice(&source.to_be_bytes());
        header[16..].copy_from_slice(&destination.to_be_bytes());
        header
    }

    fn signer(number: u8) -> Signer {
        Signer::new(Secret::new([number; 32]), 100)
    }

    /// `docs/contract.md` in other words: 128-bit integers, cut to 64 bits at the end.
    #[test]
    fn a_signature_is_that_of_the_contract() {
        let mut stream = ChaCha20Rng::from_seed([7; 32]);
        stream.set_word_pos(2 << 36);
        let m: Vec<u128> = (0..9).map(|_| stream.next_u64().into()).collect();
        let mut stream = ChaCha20Rng::from_seed([7; 32]);
        stream.set_stream(98);
        stream.set_word_pos(1 << 36);
        let pad = u128::from(stream.next_u64());
        let (s, d, p) = (0x0A01_0002, 0x0A02_0002, 6);
        let sum = pad + (m[0] + s) % (1 << 64) * ((m[1] + d) % (1 << 64)) % (1 << 64) + m[8] * p;
        let signed = signer(7).ipv4(98 % 8, &header(s as u32, d as u32, p as u8));
        assert_eq!(u128::from(signed), sum % (1 << 64));
    }

    #[test]
    fn every_word_of_a_header_is_signed() {
        let signer = signer(3);
        let mut ipv6 = [0x5A; 40];
        let before = signer.ipv6(4, &ipv6);
        for at in (8..40).chain([6]) {
            ipv6[at] ^= 1;
            assert_ne!(signer.ipv6(4, &ipv6), before, "byte {at}");
            ipv6[at] ^= 1;
        }
        assert_ne!(signer.ipv6(5, &ipv6), before);
    }

    /// Who knows the signature of one packet guesses another's once in 256 times, whatever it
    /// adds to addresses and protocol.
    #[test]
    fn a_known_signature_says_nothing_of_another() {
        let differences =
            [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, u32::MAX, 0), (1 << 31, 1 << 31, 0)];
        for (source, destination, protocol) in differences {
            let mut same = [0_u32; 256];
            for number in 0..25_600_u32 {
                let mut secret = [1; 32];
                secret[..4].copy_from_slice(&number.to_le_bytes());
                let signer = Signer::new(Secret::new(secret), 8);
                let [one, other] = [
                    header(0x0A00_0001, 0x0A00_0002, 6),
                    header(
                        0x0A00_0001 ^ source,
                        0x0A00_0002_u32.wrapping_add(destination),
                        6 ^ protocol,
                    ),
                ]
                .map(|header| (signer.ipv4(1, &header) >> 56) as u8);
                same[usize::from(one.wrapping_sub(other))] += 1;
            }
            // A hundred each, and six standard deviations.
            assert!(same.iter().all(|&times| (40..=160).contains(&times)), "{same:?}");
        }
    }

    #[test]
    fn the_epoch_to_come_is_known_beside_the_eighth_back() {
        let header = header(1, 2, 17);
        let signer = signer(1);
        for (newest, fits) in [(100, true), (101, true), (93, true), (92, false), (102, false)] {
            let theirs =
                Signer::new(Secret::new([1; 32]), newest).ipv4(newest as u8 & 7, &header) >> 56;
            let epoch = newest as u8 & 7;
            assert_eq!(
                signer.fits(epoch, signer.ipv4(epoch, &header), 8, theirs),
                fits,
                "{newest}"
            );
        }
    }

    #[test]
    fn each_epoch_is_signed_by_its_own_secret() {
        let header = header(1, 2, 17);
        let of = |signer: &Signer, epoch: u64| signer.ipv4(epoch as u8 & 7, &header);
        let [old, new] = [1, 2].map(|byte| Secret::new([byte; 32]));
        for (asked, newest) in [(95, 100), (100, 100), (101, 100), (104, 108), (101, 112)] {
            let mut signer = Signer::new(old, asked);
            signer.follow(101, new);
            (asked + 1..=newest).for_each(|epoch| signer.begin(epoch));
            for epoch in newest - 7..=newest {
                // The one that gives way to the first of the new secret.
                if epoch + 8 == 101 && newest == 100 {
                    continue;
                }
                let secret = if epoch < 101 { old } else { new };
                let fresh = Signer::new(secret, newest);
                assert_eq!(of(&signer, epoch), of(&fresh, epoch), "{epoch} at {newest}");
            }
            let next = newest + 1;
            let theirs = of(&Signer::new(if next < 101 { old } else { new }, next), next) >> 56;
            let at = next as u8 & 7;
            assert!(signer.fits(at, signer.ipv4(at, &header), 8, theirs), "{next} at {newest}");
        }
    }

    #[test]
    fn pads_follow_the_epochs() {
        let header = header(1, 2, 17);
        let of = |signer: &Signer, epoch: u64| signer.ipv4(epoch as u8 & 7, &header);
        let mut stepped = signer(1);
        (101..=110).for_each(|epoch| stepped.begin(epoch));
        for to in [110, 103, 5, 1 << 40] {
            let mut jumped = signer(1);
            jumped.begin(to);
            let fresh = Signer::new(Secret::new([1; 32]), to);
            for epoch in to.saturating_sub(7)..=to {
                assert_eq!(of(&jumped, epoch), of(&fresh, epoch), "{epoch} at {to}");
            }
        }
        assert_eq!(of(&stepped, 103), of(&Signer::new(Secret::new([1; 32]), 105), 103));
        assert_ne!(of(&stepped, 108), of(&signer(1), 100), "eight epochs on");
    }
}
