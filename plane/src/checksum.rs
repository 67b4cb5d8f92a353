//! The Internet checksum of whole headers; what changes a field changes the checksum by as much.

/// The Internet checksum (RFC 1071) of bytes in which its field is zero; zero where it is right.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        sum += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut rest = [0; 4];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    sum += u64::from(u32::from_be_bytes(rest));
    !folded(sum)
}

/// The ones' complement sum of 16 bits (RFC 1071) of a sum over words of 16 or 32 bits; 0 only
/// where that is 0.
#[inline(always)]
pub(crate) fn folded(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xFFFF_FFFF);
    let sum = (sum >> 32) + (sum & 0xFFFF_FFFF);
    let sum = (sum >> 16) + (sum & 0xFFFF);
    let sum = (sum >> 16) + (sum & 0xFFFF);
    sum as u16
}
