//! Packets as bytes.

use calumma_sketch::FlowKey;

/// Bytes of a made-up packet that are at hand: the least that Ethernet carries, without the checksum
/// at its end.
pub(crate) const FRAME: usize = 60;

const TCP: u8 = 6;

/// The beginning of a packet of flow `key` that is `wire_len` bytes long, at least 60; what is
/// not at hand of it is zeros. Checksums are right.
pub fn frame(key: &FlowKey, wire_len: u16) -> [u8; FRAME] {
    let ip_len = wire_len.max(FRAME as u16) - 14;
    let mut frame = [0; FRAME];
    // Locally administered addresses that say which host it is.
    frame[0] = 2;
    frame[2..6].copy_from_slice(&key.dst().octets());
    frame[6] = 2;
    frame[8..12].copy_from_slice(&key.src().octets());
    frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());

    let ip = &mut frame[14..34];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
    ip[8] = 64;
    ip[9] = key.protocol();
    ip[12..16].copy_from_slice(&key.src().octets());
    ip[16..20].copy_from_slice(&key.dst().octets());
    let sum = checksum(ip, 0);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());

    let payload_len = ip_len - 20;
    let transport = &mut frame[34..];
    transport[0..2].copy_from_slice(&key.sport().to_be_bytes());
    transport[2..4].copy_from_slice(&key.dport().to_be_bytes());
    let at = if key.protocol() == TCP {
        // A header of five words, ACK, and some window.
        transport[12] = 5 << 4;
        transport[13] = 0x10;
        transport[14] = 0xFF;
        16
    } else {
        transport[4..6].copy_from_slice(&payload_len.to_be_bytes());
        6
    };
    let pseudo_header = u32::from(key.protocol()) + u32::from(payload_len);
    let addresses: u32 = key.as_bytes()[..8]
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = checksum(transport, pseudo_header + addresses);
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The Internet checksum of `bytes`, an even number, on top of `sum`.
fn checksum(bytes: &[u8], sum: u32) -> u16 {
    let pairs = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum = sum + pairs.sum::<u32>();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_edge::parse::{Parsed, parse};

    #[test]
    fn a_frame_is_read_as_the_flow_it_was_made_for() {
        for (protocol, wire_len) in [(TCP, 60), (17, 60), (17, 1514), (TCP, 1514)] {
            let key = FlowKey::v4([10, 0, 1, 2].into(), [10, 0, 3, 1].into(), 4660, 443, protocol);
            let frame = frame(&key, wire_len);
            let parsed = parse(&frame, usize::from(wire_len));
            assert_eq!(parsed, Parsed::Flow { key, ip_offset: 14 });
            assert_eq!(checksum(&frame[14..34], 0), 0);
            let pseudo = 0x0A00 + 0x0102 + 0x0A00 + 0x0301 + u32::from(protocol);
            let payload_len = u32::from(wire_len) - 34;
            assert_eq!(checksum(&frame[34..], pseudo + payload_len), 0);
        }
    }
}
