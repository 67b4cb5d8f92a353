//! Any bytes as a packet: parsing never panics, and a marked packet reads and restores as it should.
//!
//! Run with `cargo +nightly fuzz run packet` in `dataplane/edge/`.
#![no_main]

use calumma_edge::carrier::{self, Mark};
use calumma_edge::parse::{Parsed, parse};
use calumma_sketch::Hierarchy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (bits, before) = input;
    let mut packet = before.clone();
    let parsed = parse(&packet, packet.len());
    let Parsed::Flow { key, ip_offset } = parsed else { return };
    let dscp = (before[ip_offset + 1] >> 2) & 0b11_1000;
    let mark =
        Mark { bit: usize::from(bits >> 2 & 1), hierarchy: Hierarchy::from_bits(bits) };
    carrier::write(&mut packet, ip_offset, mark);
    assert_eq!(carrier::read(&packet, ip_offset), Some(mark));
    assert_eq!(parse(&packet, packet.len()), Parsed::Flow { key, ip_offset });
    carrier::restore(&mut packet, ip_offset, dscp);
    // A checksum of 0xffff, which no right one is, may come back as zero.
    packet[ip_offset + 10..ip_offset + 12].fill(0);
    let mut wanted = before;
    wanted[ip_offset + 10..ip_offset + 12].fill(0);
    assert_eq!(packet, wanted);
});
