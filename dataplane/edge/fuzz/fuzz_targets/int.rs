//! Any bytes as a packet that a source puts an INT stack into, and as one that has a stack: read,
//! extended, taken out. Nothing panics, and what is put in is taken out to the byte.
//!
//! Run with `cargo +nightly fuzz run fuzz-edge-int` in `dataplane/edge/`. Input is a byte that says
//! how many bytes a capture has cut off and, in its highest bit, whether a UDP port marks packets,
//! an MTU, and a packet; real ones are written to the folder that `CALUMMA_SEEDS` names.
#![no_main]

#[path = "../../tests/packets/captured.rs"]
mod captured;

use std::num::NonZeroU16;

use calumma_edge::carrier::Carrier;
use calumma_edge::packet::{Frame, Packet};
use calumma_plane::int::header::{Original, Seen, ip_offset, look, set_marker, tos};
use calumma_plane::int::push::{self, Pushed};
use calumma_plane::int::strip::{Goes, read, strip};
use calumma_plane::int::{Domains, Hop, Insertion, Instructions, MOST_HOPS, Stack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: captured::write_seeds(&[0, 5, 220]),
    |input: &[u8]| {
        let Some((&[first, high, low], bytes)) = input.split_first_chunk() else { return };
        let (missing, by_port) = (first & 0x7F, first & 0x80 != 0);
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
        let instructions = Instructions::DEFAULT;
        let udp_port = NonZeroU16::new(41_000).filter(|_| by_port);
        let insertion = Insertion { domain: one, node: one, instructions, hops: 6, udp_port };

        let mut packet = before.clone();
        let dscp = tos(&packet, ip) >> 2;
        set_marker(&mut packet, ip, false);
        let cleared = packet.clone();
        if push::source(&mut packet, ip, (&insertion, &Hop::UNKNOWN), dscp, mtu).is_ok() {
            let Seen::Stack(found) = look(&packet, ip, Domains::ANY) else { panic!("no stack") };
            let _ = found.original_flow(&packet);
            assert!(strip(&mut packet, ip, &found, Goes::ToHost));
            // The DSCP is in no other shim.
            let whole = matches!(found.header.original, Original::Dscp(_));
            assert_eq!(packet.bytes(), if whole { before.bytes() } else { cleared.bytes() });
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
