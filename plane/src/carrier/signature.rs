//! What tells marks from the bits that hosts and routers write into the same fields.

use std::fmt;

use calumma_sketch::hash::ADDRESS_BYTES;
use calumma_sketch::simd::Isa;
use calumma_sketch::{AddressHash, Engine};
use calumma_wire::Secret;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Epochs that three bits of their number tell apart.
const EPOCHS: usize = 8;

/// Factors: one for each word of both IPv6 addresses, and one for the next header.
const FACTORS: usize = 9;

/// Bits of an IPv6 header's signature.
const IPV6_BITS: u32 = 12;

/// The first words of the nonces under which pads and factors are drawn from the secret; the hash
/// functions' tables have 0, and 3 and 4 are taken as well.
const PADS_NONCE: u32 = 1;
const IPV6_FACTORS_NONCE: u32 = 2;
const IPV4_FACTORS_NONCE: u32 = 5;

/// What signs IPv4 headers: a hash of addresses and protocol, and a byte for each epoch, drawn from
/// the deployment's secret.
///
/// The signature is the exclusive or of the hash and of the epoch's byte. A Tofino computes it from
/// a table for each byte of source, destination and protocol (`docs/contract.md`, Signature).
#[derive(Clone)]
pub struct SignatureTables {
    secret: Secret,
    hash: AddressHash,
}

impl SignatureTables {
    /// The tables of a secret.
    pub fn new(secret: Secret) -> Self {
        let mut stream = key_stream(secret, IPV4_FACTORS_NONCE, 0);
        let factors = std::array::from_fn(|_| stream.next_u64());
        Self { secret, hash: AddressHash::new(factors) }
    }

    /// The tables of the source's four bytes, the destination's, and the protocol's.
    pub fn bytes(&self) -> &[[u8; 256]; ADDRESS_BYTES] {
        self.hash.tables()
    }

    /// The byte of an epoch.
    pub fn pad(&self, epoch: u64) -> u8 {
        pad_of_ipv4(self.pads(epoch))
    }

    /// What is added to the signatures of an epoch.
    fn pads(&self, epoch: u64) -> u64 {
        key_stream(self.secret, PADS_NONCE, epoch).next_u64()
    }
}

impl fmt::Debug for SignatureTables {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignatureTables(..)")
    }
}

/// What an epoch's pad is to IPv4: as many of its upper bits as the signature has.
#[inline(always)]
fn pad_of_ipv4(pad: u64) -> u8 {
    (pad >> (u64::BITS - u8::BITS)) as u8
}

/// What an IPv6 header has of a sum: its upper bits.
#[inline(always)]
fn cut_ipv6(sum: u64) -> u16 {
    (sum >> (u64::BITS - IPV6_BITS)) as u16
}

/// Signs the addresses and protocol of packets, under a key of its own in each epoch.
///
/// IPv4 headers by [carry-less products](AddressHash), IPv6 headers by products of sums modulo
/// 2^64, of which the upper bits are used (Lemire and Kaser, "Strongly universal string hashing is
/// fast", 2014). Without the secret a signature of n bits is guessed with probability 2^-n, also by
/// who has seen that of one other packet of the epoch. It is no authentication: who sees several
/// can compute more.
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
    /// What bursts are signed with.
    engine: Engine,
}

/// What signs the IPv4 headers of an epoch.
#[derive(Clone, Copy)]
pub(super) struct Signing<'a> {
    hash: &'a AddressHash,
    /// The epoch's pad, and that of the one to come which has the same three bits, if it has.
    pads: [u8; 2],
}

impl Signing<'_> {
    /// The signature of a header.
    #[inline(always)]
    pub(super) fn sign(self, header: &[u8; 20], isa: impl Isa) -> u8 {
        isa.address_hash(self.hash, header) ^ self.pads[0]
    }

    /// Whether a header may have the signature `signed`.
    #[inline(always)]
    pub(super) fn fits(self, header: &[u8; 20], signed: u8, isa: impl Isa) -> bool {
        self.pads.contains(&(isa.address_hash(self.hash, header) ^ signed))
    }
}

/// What is drawn from a secret: what signs IPv4, and what addresses and protocol of IPv6 are
/// multiplied by.
#[derive(Clone)]
struct SigningKey {
    tables: SignatureTables,
    factors: [u64; FACTORS],
}

impl SigningKey {
    fn new(secret: Secret) -> Self {
        let mut stream = key_stream(secret, IPV6_FACTORS_NONCE, 0);
        let factors = std::array::from_fn(|_| stream.next_u64());
        Self { tables: SignatureTables::new(secret), factors }
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
        let key = SigningKey::new(secret);
        let mut signer = Self {
            keys: Box::new([key.clone(), key]),
            newer: (0, 0),
            pads: [0; EPOCHS],
            of: [0; EPOCHS],
            ahead: 0,
            newest,
            engine: Engine::detect(),
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
        self.keys[self.secret_of(epoch)].tables.pads(epoch)
    }

    /// What signs the epoch of these three bits.
    #[inline(always)]
    fn key_of(&self, at: usize) -> &SigningKey {
        &self.keys[usize::from(self.of[at]) & 1]
    }

    /// The pads of the epochs that these three bits may mean: the eighth epoch back has those of
    /// the one to come. One of two is there twice.
    #[inline(always)]
    fn pads_of(&self, at: usize) -> [u64; 2] {
        let pad = self.pads[at];
        let is_ahead = (self.newest + 1) as usize % EPOCHS == at;
        [pad, if is_ahead { self.ahead } else { pad }]
    }

    /// What signs IPv4 headers in the epoch of these three bits.
    #[inline(always)]
    pub(super) fn ipv4(&self, epoch: u8) -> Signing<'_> {
        let at = usize::from(epoch) % EPOCHS;
        let pads = self.pads_of(at).map(pad_of_ipv4);
        Signing { hash: &self.key_of(at).tables.hash, pads }
    }

    /// The instructions that bursts are signed with.
    #[inline(always)]
    pub(super) fn engine(&self) -> Engine {
        self.engine
    }

    /// Has signatures computed with other instructions: one of [`Engine::available`]. They stay the
    /// same.
    pub fn with_engine(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// The signature of an IPv6 header, in the epoch of these three bits: twelve bits.
    #[inline(always)]
    pub(super) fn ipv6(&self, epoch: u8, header: &[u8; 40]) -> u16 {
        let at = usize::from(epoch) % EPOCHS;
        cut_ipv6(self.products(at, header).wrapping_add(self.pads[at]))
    }

    /// Whether an IPv6 header that says this epoch may have the signature `signed`.
    #[inline(always)]
    pub(super) fn fits_ipv6(&self, epoch: u8, header: &[u8; 40], signed: u16) -> bool {
        let at = usize::from(epoch) % EPOCHS;
        let products = self.products(at, header);
        self.pads_of(at).map(|pad| cut_ipv6(products.wrapping_add(pad))).contains(&signed)
    }

    /// What addresses and next header of IPv6 add up to.
    #[inline(always)]
    fn products(&self, at: usize, header: &[u8; 40]) -> u64 {
        let (words, _) = header[8..].as_chunks::<4>();
        let word = |at: usize| u64::from(u32::from_be_bytes(words[at]));
        let factors = &self.key_of(at).factors;
        let products = (0..4)
            .map(|at| product([factors[2 * at], factors[2 * at + 1]], [word(at), word(at + 4)]));
        let of_protocol = factors[FACTORS - 1].wrapping_mul(header[6].into());
        products.fold(of_protocol, u64::wrapping_add)
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
    use calumma_sketch::simd::Scalar;

    fn header(source: u32, destination: u32, protocol: u8) -> [u8; 20] {
        let mut header = [0; 20];
        header[9] = protocol;
        header[12..16].copy_from_slice(&source.to_be_bytes());
        header[16..].copy_from_slice(&destination.to_be_bytes());
        header
    }

    /// Those of an IPv4 and of an IPv6 header.
    fn signatures(signer: &Signer, epoch: u64, header: &[u8; 20]) -> (u8, u16) {
        (sign(signer, epoch, header), signer.ipv6(epoch as u8 & 7, &[7; 40]))
    }

    fn sign(signer: &Signer, epoch: u64, header: &[u8; 20]) -> u8 {
        signer.ipv4(epoch as u8 & 7).sign(header, Scalar)
    }

    fn fits(signer: &Signer, epoch: u64, header: &[u8; 20], signed: u8) -> bool {
        signer.ipv4(epoch as u8 & 7).fits(header, signed, Scalar)
    }

    fn signer(number: u8) -> Signer {
        Signer::new(Secret::new([number; 32]), 100)
    }

    fn stream(secret: u8, nonce: u128, epoch: u64) -> ChaCha20Rng {
        let mut stream = ChaCha20Rng::from_seed([secret; 32]);
        stream.set_stream(epoch);
        stream.set_word_pos(nonce << 36);
        stream
    }

    /// `docs/contract.md` in other words: 128-bit integers, added bit by bit.
    #[test]
    fn a_signature_of_ipv4_is_that_of_the_contract() {
        let mut factors = stream(7, 5, 0);
        let mut sum = u128::from(stream(7, 1, 98).next_u64());
        for number in [0x0A01_0002_u64, 0x000A_0200_0306] {
            let factor = u128::from(factors.next_u64());
            let bits = (0..64).filter(|bit| number & 1 << bit != 0);
            sum = bits.fold(sum, |sum, bit| sum ^ factor << bit);
        }
        let signed = (sum >> 56) as u8;
        let header = header(0x0A01_0002, 0x0A02_0003, 6);
        assert_eq!(sign(&signer(7), 98, &header), signed);
        assert!(fits(&signer(7), 98, &header, signed));
        // As a Tofino has it.
        let tables = SignatureTables::new(Secret::new([7; 32]));
        let bytes = [0x0A, 1, 0, 2, 0x0A, 2, 0, 3, 6].into_iter().zip(tables.bytes());
        let by_tables = bytes.fold(tables.pad(98), |sum, (byte, table)| sum ^ table[byte]);
        assert_eq!(by_tables, signed);
    }

    /// The same: 128-bit integers, cut to 64 bits at the end.
    #[test]
    fn a_signature_of_ipv6_is_that_of_the_contract() {
        let mut factors = stream(7, 2, 0);
        let m: Vec<u128> = (0..9).map(|_| factors.next_u64().into()).collect();
        let mut header = [0; 40];
        header[6] = 17;
        (8..).zip(&mut header[8..]).for_each(|(at, byte)| *byte = at);
        let word = |at: usize| u128::from(u32::from_be_bytes(*header[at..].first_chunk().unwrap()));
        let sums = (0..4).map(|at| {
            (m[2 * at] + word(8 + 4 * at)) % (1 << 64)
                * ((m[2 * at + 1] + word(24 + 4 * at)) % (1 << 64))
                % (1 << 64)
        });
        let sum = sums.sum::<u128>() + m[8] * 17 + u128::from(stream(7, 1, 98).next_u64());
        assert_eq!(u128::from(signer(7).ipv6(98 % 8, &header)), (sum % (1 << 64)) >> 52);
    }

    #[test]
    fn every_byte_of_an_ipv4_header_that_is_signed_counts() {
        let signers: Vec<Signer> = (0..16).map(signer).collect();
        let of = |header: &[u8; 20]| signers.iter().map(|s| sign(s, 4, header)).collect::<Vec<_>>();
        let mut header = header(0x0102_0304, 0x0506_0708, 17);
        let before = of(&header);
        for at in 0..20 {
            header[at] ^= 0x21;
            // Not the checksum, the TTL, the identification, ...
            assert_eq!(of(&header) != before, at == 9 || at >= 12, "byte {at}");
            header[at] ^= 0x21;
        }
    }

    /// Who knows the signature of one packet guesses another's once in 256 times, whatever it
    /// adds to addresses and protocol.
    #[test]
    fn a_known_signature_says_nothing_of_another() {
        let differences = [
            (1, 0, 0),
            (0, 1, 0),
            (0, 0, 1),
            (1, u32::MAX, 0),
            (1 << 31, 1 << 31, 0),
            // The same in several bytes.
            (0x0303, 0x0303, 3),
            (u32::MAX, u32::MAX, 0xFF),
        ];
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
                .map(|header| sign(&signer, 1, &header));
                same[usize::from(one ^ other)] += 1;
            }
            // A hundred each, and six standard deviations.
            assert!(same.iter().all(|&times| (40..=160).contains(&times)), "{same:?}");
        }
    }

    #[test]
    fn the_epoch_to_come_is_known_beside_the_eighth_back() {
        let header = header(1, 2, 17);
        let signer = signer(1);
        for (newest, does) in [(100, true), (101, true), (93, true), (92, false), (102, false)] {
            let (sender, epoch) = (Signer::new(Secret::new([1; 32]), newest), newest as u8 & 7);
            let theirs = sign(&sender, newest, &header);
            assert_eq!(fits(&signer, newest, &header, theirs), does, "{newest}");
            let theirs = sender.ipv6(epoch, &[7; 40]);
            assert_eq!(signer.fits_ipv6(epoch, &[7; 40], theirs), does, "{newest}");
        }
    }

    #[test]
    fn each_epoch_is_signed_by_its_own_secret() {
        let header = header(1, 2, 17);
        let of = |signer: &Signer, epoch: u64| signatures(signer, epoch, &header);
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
            let secret = if next < 101 { old } else { new };
            let (ipv4, ipv6) = of(&Signer::new(secret, next), next);
            let at = next as u8 & 7;
            assert!(fits(&signer, next, &header, ipv4), "{next} at {newest}");
            assert!(signer.fits_ipv6(at, &[7; 40], ipv6), "{next} at {newest}");
        }
    }

    #[test]
    fn pads_follow_the_epochs() {
        let header = header(1, 2, 17);
        let of = |signer: &Signer, epoch: u64| signatures(signer, epoch, &header);
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
