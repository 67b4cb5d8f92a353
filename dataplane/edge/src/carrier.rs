//! The mark: three bits that travel with a packet from its ingress to its egress edge.
//!
//! They lie in the top of the IPv4 ToS byte: bit 7 is the timestamp bit, bits 6-5 the hierarchy.
//! At egress they are given back as the configured DSCP says. The lower three bits of the DSCP and
//! the ECN field are never touched, and the header checksum follows incrementally (RFC 1624).

use calumma_sketch::Hierarchy;

/// What a packet carries through the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Timestamp bit of the epoch it entered in.
    pub bit: usize,
    /// Hierarchy that its ingress edge gave it.
    pub hierarchy: Hierarchy,
}

const MARK_BITS: u8 = 0b1110_0000;

/// Writes the mark into the packet whose IPv4 header begins at `ip_offset`; without a whole header
/// there, nothing happens.
#[inline]
pub fn write(bytes: &mut [u8], ip_offset: usize, mark: Mark) {
    set_top_bits(bytes, ip_offset, (mark.bit as u8) << 7 | mark.hierarchy.bits() << 5);
}

/// Reads the mark of the packet whose IPv4 header begins at `ip_offset`.
#[inline]
pub fn read(bytes: &[u8], ip_offset: usize) -> Option<Mark> {
    let tos = *bytes.get(ip_offset + 1)?;
    Some(Mark { bit: usize::from(tos >> 7), hierarchy: Hierarchy::from_bits(tos >> 5) })
}

/// Takes the mark out: the three bits become the upper half of `dscp` (0 to 63).
#[inline]
pub fn restore(bytes: &mut [u8], ip_offset: usize, dscp: u8) {
    set_top_bits(bytes, ip_offset, dscp << 2 & MARK_BITS);
}

#[inline]
fn set_top_bits(bytes: &mut [u8], ip_offset: usize, bits: u8) {
    let Some(header) = bytes.get_mut(ip_offset..).and_then(|rest| rest.first_chunk_mut::<20>())
    else {
        return;
    };
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] = header[1] & !MARK_BITS | bits;
    let after = u16::from_be_bytes([header[0], header[1]]);
    if before == after {
        return;
    }
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::{checksum, udp};
    use proptest::prelude::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_the_checksum_stays_right() {
        for bits in 0..8_u8 {
            let mut frame = udp(0, 0);
            let mark =
                Mark { bit: usize::from(bits >> 2), hierarchy: Hierarchy::from_bits(bits & 3) };
            write(&mut frame, 14, mark);
            assert_eq!(read(&frame, 14), Some(mark));
            assert_eq!(frame[15], bits << 5 | 0x03, "the rest of the ToS byte is untouched");
            assert_eq!(checksum(&frame[14..34]), 0);
        }
    }

    #[test]
    fn egress_gives_the_configured_dscp_back() {
        let mut frame = udp(0, 0);
        write(&mut frame, 14, Mark { bit: 1, hierarchy: Hierarchy::HhCandidate });
        restore(&mut frame, 14, 46);
        assert_eq!(frame[15], 0b1010_0000 | 0x03);
        assert_eq!(checksum(&frame[14..34]), 0);
    }

    proptest! {
        #[test]
        fn marking_and_restoring_leaves_the_packet_as_it_came(
            tos in 0u8..32, header: [u8; 18], bits in 0u8..8,
        ) {
            let mut frame = vec![0; 14];
            frame.extend_from_slice(&[0x45, tos]);
            frame.extend_from_slice(&header);
            frame[24..26].fill(0);
            let right = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&right.to_be_bytes());
            let before = frame.clone();
            let mark =
                Mark { bit: usize::from(bits >> 2), hierarchy: Hierarchy::from_bits(bits & 3) };
            write(&mut frame, 14, mark);
            restore(&mut frame, 14, 0);
            prop_assert_eq!(frame, before);
        }
    }
}
