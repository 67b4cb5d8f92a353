//! All flows of a window in few bytes, for a line of the archive's journal.
//!
//! A report's JSON has the largest flows only, with what each node counted, at some hundreds of
//! bytes each. Those of the archive have one count each, and there may be millions: here an IPv4
//! flow takes about 20 bytes, a third more in base64, and a journal's line is made where the
//! archive waits for its disk, not where windows are reported.
//!
//! A byte says the version. Then each flow has a byte of flags, those fields which flags do not
//! say, and numbers in groups of seven bits, the least first.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use calumma_analysis::Flow;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::counted::Monitored;
use crate::report::Counted;

const VERSION: u8 = 1;

const EXACT: u8 = 1;
/// The flow before has the same source, the same destination, the same protocol.
const SAME_SRC: u8 = 1 << 1;
const SAME_DST: u8 = 1 << 2;
const SAME_PROTO: u8 = 1 << 3;
/// An address is one of IPv6.
const WIDE_SRC: u8 = 1 << 4;
const WIDE_DST: u8 = 1 << 5;
/// There is a time to live, and another one.
const TTL: u8 = 1 << 6;
const TTLS: u8 = 1 << 7;

/// Flows by rising keys as text.
pub(crate) fn packed(flows: &[Counted]) -> String {
    let mut bytes = Vec::with_capacity(1 + 20 * flows.len());
    bytes.push(VERSION);
    let mut before: Option<&Flow> = None;
    for Counted { flow, packets, bytes: of_bytes, exact, at, hops, ttls } in flows {
        let same = |of: &dyn Fn(&Flow) -> bool| before.is_some_and(of);
        let flags = [
            (EXACT, *exact),
            (SAME_SRC, same(&|before| before.src == flow.src)),
            (SAME_DST, same(&|before| before.dst == flow.dst)),
            (SAME_PROTO, same(&|before| before.proto == flow.proto)),
            (WIDE_SRC, flow.src.is_ipv6()),
            (WIDE_DST, flow.dst.is_ipv6()),
            (TTL, ttls.is_some()),
            (TTLS, ttls.is_some_and(|[least, most]| least != most)),
        ];
        let flags = flags.iter().filter(|(_, is)| *is).fold(0, |all, (flag, _)| all | flag);
        bytes.push(flags);
        for (same, address) in [(SAME_SRC, flow.src), (SAME_DST, flow.dst)] {
            match address {
                _ if flags & same != 0 => {}
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        bytes.extend([flow.sport, flow.dport].map(u16::to_be_bytes).as_flattened());
        if flags & SAME_PROTO == 0 {
            bytes.push(flow.proto);
        }
        let numbers = [*packets, *of_bytes, *at as u64, (*hops).into()];
        numbers.into_iter().for_each(|number| put(number, &mut bytes));
        if let Some([least, most]) = ttls {
            bytes.push(*least);
            bytes.extend((least != most).then_some(*most));
        }
        before = Some(flow);
    }
    STANDARD_NO_PAD.encode(bytes)
}

fn put(mut number: u64, bytes: &mut Vec<u8>) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// What is left of the bytes.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn short(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn address(&mut self, is_wide: bool) -> Option<IpAddr> {
        let narrow = |bytes: &mut Self| bytes.take::<4>().map(IpAddr::from);
        if is_wide { self.take::<16>().map(IpAddr::from) } else { narrow(self) }
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            number |= bits.checked_mul(1 << shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn flow(&mut self, before: Option<&Flow>) -> Option<Counted> {
        let flags = self.byte()?;
        let has = |flag: u8| flags & flag != 0;
        let src = if has(SAME_SRC) { before?.src } else { self.address(has(WIDE_SRC))? };
        let dst = if has(SAME_DST) { before?.dst } else { self.address(has(WIDE_DST))? };
        let (sport, dport) = (self.short()?, self.short()?);
        let proto = if has(SAME_PROTO) { before?.proto } else { self.byte()? };
        let flow = Flow { src, dst, sport, dport, proto };
        let (packets, bytes) = (self.number()?, self.number()?);
        let (at, hops) = (self.number()?.try_into().ok()?, self.number()?.try_into().ok()?);
        let ttls = if has(TTL) {
            let least = self.byte()?;
            Some([least, if has(TTLS) { self.byte()? } else { least }])
        } else {
            None
        };
        Some(Counted { flow, packets, bytes, exact: has(EXACT), at, hops, ttls })
    }
}

/// The flows of such a text; none where a later version wrote it, `None` where it is none.
fn unpacked(text: &str) -> Option<Vec<Counted>> {
    let bytes = STANDARD_NO_PAD.decode(text).ok()?;
    let mut bytes = Bytes(&bytes);
    if bytes.byte()? != VERSION {
        return Some(Vec::new());
    }
    let mut flows: Vec<Counted> = Vec::new();
    while !bytes.0.is_empty() {
        let flow = bytes.flow(flows.last().map(|last| &last.flow))?;
        flows.push(flow);
    }
    Some(flows)
}

/// Reads them from a field of JSON.
pub(crate) fn read<'de, D: Deserializer<'de>>(json: D) -> Result<Arc<Monitored>, D::Error> {
    let text = Cow::<str>::deserialize(json)?;
    let flows = unpacked(&text).ok_or_else(|| D::Error::custom("no flows"))?;
    Ok(Arc::new(Monitored::listed(flows)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted() -> impl Strategy<Value = Counted> {
        let address = prop_oneof![Just(1), Just(2), any::<u128>()];
        let address = (any::<bool>(), address).prop_map(|(is_wide, of)| -> IpAddr {
            if is_wide { of.to_be_bytes().into() } else { (of as u32).to_be_bytes().into() }
        });
        let flow = (address.clone(), address, any::<[u16; 2]>(), 5..8_u8);
        let flow = flow.prop_map(|(src, dst, [sport, dport], proto)| Flow {
            src,
            dst,
            sport,
            dport,
            proto,
        });
        let number = || prop_oneof![0..300_u64, any::<u64>()];
        let ttls =
            prop::option::of(prop_oneof![any::<[u8; 2]>(), any::<u8>().prop_map(|of| [of; 2])]);
        (flow, number(), number(), any::<bool>(), 0..300_usize, any::<u32>(), ttls).prop_map(
            |(flow, packets, bytes, exact, at, hops, ttls)| Counted {
                flow,
                packets,
                bytes,
                exact,
                at,
                hops,
                ttls,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_packed_is_what_is_read(flows in prop::collection::vec(counted(), 0..50)) {
            prop_assert_eq!(unpacked(&packed(&flows)), Some(flows));
        }

        #[test]
        fn anything_may_be_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let read = unpacked(&STANDARD_NO_PAD.encode([&[VERSION], &bytes[..]].concat()));
            if let Some(flows) = read {
                prop_assert_eq!(unpacked(&packed(&flows)), Some(flows));
            }
        }
    }

    #[test]
    fn what_is_cut_off_is_no_flow_and_what_a_later_version_wrote_is_passed_over() {
        let flow = Flow {
            src: [10, 1, 0, 2].into(),
            dst: [10, 2, 0, 2].into(),
            sport: 40_000,
            dport: 5201,
            proto: 6,
        };
        let one = Counted {
            flow,
            packets: 1000,
            bytes: 1_500_000,
            exact: true,
            at: 0,
            hops: 3,
            ttls: Some([64; 2]),
        };
        let text = packed(&[one]);
        let bytes = STANDARD_NO_PAD.decode(&text).unwrap();
        assert_eq!((bytes.len(), text.len()), (1 + 22, 31));
        for cut in 2..bytes.len() {
            assert_eq!(unpacked(&STANDARD_NO_PAD.encode(&bytes[..cut])), None, "{cut}");
        }
        let later = [&[2], &bytes[1..]].concat();
        assert_eq!(unpacked(&STANDARD_NO_PAD.encode(later)), Some(Vec::new()));
        assert_eq!(unpacked("AR+!"), None);
    }
}
