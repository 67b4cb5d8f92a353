//! Frames as hosts send them, right ones and others.

use proptest::prelude::*;

/// A frame as a host may send it.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) tags: usize,
    pub(crate) ipv6: bool,
    pub(crate) protocol: u8,
    pub(crate) options: usize,
    pub(crate) tos: u8,
    /// Flags and offset of fragments.
    pub(crate) fragment: u16,
    /// What is added to lengths that would be right.
    pub(crate) total: i8,
    pub(crate) udp: i8,
    /// Words of TCP's header.
    pub(crate) offset: u8,
    pub(crate) ip_checksum: u16,
    pub(crate) checksum: u16,
    pub(crate) payload: Vec<u8>,
    pub(crate) padding: usize,
}

impl Host {
    pub(crate) fn ip_offset(&self) -> usize {
        14 + 4 * self.tags
    }

    /// Bytes behind what says that it is the IP packet.
    pub(crate) fn behind(&self) -> usize {
        self.padding.saturating_add_signed(-isize::from(self.total))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![7; 12];
        for tag in 0..self.tags {
            bytes.extend_from_slice(if tag + 1 < self.tags { &[0x88, 0xA8] } else { &[0x81, 0] });
            bytes.extend_from_slice(&[0, 9]);
        }
        let mut l4 = vec![5; 4];
        let changed =
            |len: usize, by: i8| (len as u16).wrapping_add_signed(by.into()).to_be_bytes();
        match self.protocol {
            6 => {
                l4.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, self.offset << 4, 0x10, 9, 9]);
                l4.extend_from_slice(&self.checksum.to_be_bytes());
                l4.extend_from_slice(&[0, 0]);
            }
            17 => {
                l4.extend_from_slice(&changed(8 + self.payload.len(), self.udp));
                l4.extend_from_slice(&self.checksum.to_be_bytes());
            }
            _ => {}
        }
        l4.extend_from_slice(&self.payload);
        if self.ipv6 {
            let [version, low] = [0x60 | self.tos >> 4, self.tos << 4 | 3];
            bytes.extend_from_slice(&[0x86, 0xDD, version, low, 1, 2]);
            bytes.extend_from_slice(&changed(l4.len(), self.total));
            bytes.extend_from_slice(&[self.protocol, 60]);
            bytes.extend(1..=32);
        } else {
            let ip = 20 + 4 * self.options;
            bytes.extend_from_slice(&[8, 0, 0x40 | (ip / 4) as u8, self.tos]);
            bytes.extend_from_slice(&changed(ip + l4.len(), self.total));
            bytes.extend_from_slice(&[0, 1]);
            bytes.extend_from_slice(&self.fragment.to_be_bytes());
            bytes.extend_from_slice(&[60, self.protocol]);
            bytes.extend_from_slice(&self.ip_checksum.to_be_bytes());
            bytes.extend(1..=8);
            bytes.resize(self.ip_offset() + ip, 1);
        }
        bytes.extend(l4);
        bytes.resize(bytes.len() + self.padding, 0);
        bytes
    }
}

/// Any of them.
pub(crate) fn hosts() -> impl Strategy<Value = Host> {
    let checksum = || prop_oneof![6 => any::<u16>(), 1 => Just(0), 1 => Just(0xFFFF)];
    let amiss = || prop_oneof![8 => Just(0_i8), 1 => -40_i8..4];
    let headers = (
        0_usize..3,
        any::<bool>(),
        prop_oneof![4 => Just(6_u8), 4 => Just(17), 1 => Just(1), 1 => Just(132)],
        prop_oneof![3 => Just(0_usize), 1 => 0_usize..=10],
        any::<u8>(),
        prop_oneof![8 => Just(0x4000_u16), 1 => Just(0), 1 => Just(0x2000), 1 => 0_u16..0x2000],
    );
    let payload = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..64),
        1 => (480_usize..600).prop_map(|len| vec![3; len]),
    ];
    let rest = (
        amiss(),
        amiss(),
        prop_oneof![4 => Just(5_u8), 1 => 0_u8..16],
        checksum(),
        checksum(),
        payload,
        prop_oneof![2 => Just(0_usize), 1 => 0_usize..10],
    );
    (headers, rest).prop_map(|(headers, rest)| {
        let (tags, ipv6, protocol, options, tos, fragment) = headers;
        let (total, udp, offset, ip_checksum, checksum, payload, padding) = rest;
        Host {
            tags,
            ipv6,
            protocol,
            options,
            tos,
            fragment,
            total,
            udp,
            offset,
            ip_checksum,
            checksum,
            payload,
            padding,
        }
    })
}
