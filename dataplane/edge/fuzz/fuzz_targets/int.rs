//! Any bytes as a packet that a source puts an INT stack into, and as one that has a stack: read,
//! extended, taken out. Nothing panics, and what is put in is taken out to the byte.
//!
//! Run with `cargo +nightly fuzz run fuzz-edge-int` in `dataplane/edge/`. Input is a byte that says
//! how many bytes a capture has cut off, an MTU, and a packet; real ones are written to the folder
//! that `CALUMMA_SEEDS` names.
#![no_main]

#[path = "../../tests/packets/captured.rs"]
mod captured;

use std::num::NonZeroU16;

use calumma_edge::carrier::Carrier;
use calumma_edge::packet::{Frame, Packet};
use calumma_plane::int::header::{Seen, ip_offset, look, set_marker, tos};
use calumma_plane::int::push::{self, Pushed};
use calumma_plane::int::strip::{Goes, read, strip};
use calumma_plane::int::{Domains, Hop, Insertion, Instructions, MOST_HOPS, Stack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: captured::write_seeds(&[0, 5, 220]),
    |input: &[u8]| {
        let Some((&[missing, high, low], bytes)) = input.split_first_chunk() else { return };
        let mtu = usize::from(u16::from_be_bytes([high, low]));
        let Some(ip) = ip_offset(bytes, Carrier::default()) else { return };
        if bytes[ip..].first().is_some_and(|first| first >> 4 == 4)
            && bytes.get(ip + 10..ip + 12) == Some(&[0xFF; 2])
        {
            // A header checksum that no sender writes: 0 says the same, and comes out.
            return;
        }
        let before = Frame::with_headroom(128, bytes).cut_from(bytes.len() + usize::from(missing));
        let Some(one) = NonZeroU16::new(1) else { return };
        let insertion =
            Insertion { domain: one, node: one, instructions: Instructions::DEFAULT, hops: 6 };

        let mut packet = before.clone();
        let dscp = tos(&packet, ip) >> 2;
        set_marker(&mut packet, ip, false);
        let cleared = packet.clone();
        if push::source(&mut packet, ip, (&insertion, &Hop::UNKNOWN), dscp, mtu).is_ok() {
            let Seen::Stack(found) = look(&packet, ip, Domains::ANY) else { panic!("no stack") };
            assert!(strip(&mut packet, ip, &found, Goes::ToHost));
            assert_eq!(packet.bytes(), before.bytes());
        } else {
            assert_eq!(packet, cleared);
        }

        let mut packet = before;
        let Seen::Stack(found) = look(&packet, ip, Domains::ANY) else { return };
        let mut stack = Stack::EMPTY;
        read(&packet, &found, &mut stack);
        assert!(stack.len() <= MOST_HOPS);
        let hops = stack.len();
        let unchanged = packet.clone();
        match push::transit(&mut packet, &found, &Hop::UNKNOWN, mtu) {
            Pushed::Hop => {
                let Seen::Stack(found) = look(&packet, ip, Domains::ANY) else { panic!("no stack") };
                read(&packet, &found, &mut stack);
                assert_eq!(stack.len(), (hops + 1).min(MOST_HOPS));
            }
            Pushed::NoRoom | Pushed::NoHops => {
                assert_eq!(packet.bytes().len(), unchanged.bytes().len());
            }
            Pushed::Nothing => assert_eq!(packet.bytes(), unchanged.bytes()),
        }
    }
);
