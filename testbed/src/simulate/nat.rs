//! Links on which a load balancer or a NAT translates addresses of some flows, always the same way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calumma_sketch::{Key, WideKey};

use crate::topology::LinkQuality;
use crate::workload::Draw;

/// What a link makes of a flow; none where it leaves it alone.
pub(super) fn translated(key: &WideKey, link: usize, quality: &LinkQuality) -> Option<WideKey> {
    if quality.dnat == 0.0 && quality.snat == 0.0 {
        return None;
    }
    let draw = [key.src(), key.dst()].iter().fold(Draw::new(link as u64), |draw, address| {
        let bits = address.to_bits();
        draw.of(bits as u64).of((bits >> 64) as u64)
    });
    let draw = draw.of(key.sport().into()).of(key.dport().into()).of(key.protocol().into());
    let is_dnat = draw.of(0).share() < quality.dnat;
    let is_snat = draw.of(1).share() < quality.snat;
    let (mut src, mut dst) = key.addresses();
    let [mut sport, mut dport] = [key.sport(), key.dport()];
    if is_dnat {
        // A server behind the address that clients know.
        dst = match dst {
            IpAddr::V4(dst) => Ipv4Addr::from_bits(dst.to_bits() | 0x80).into(),
            IpAddr::V6(dst) => Ipv6Addr::from_bits(dst.to_bits() | 0x80).into(),
        };
        dport = 8000 + draw.of(2).below(1000) as u16;
    }
    if is_snat {
        src = match src {
            IpAddr::V4(_) => Ipv4Addr::new(100, 64, (link >> 8) as u8, link as u8).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0xFD64, 0, 0, 0, 0, 0, 0, link as u16).into(),
        };
        sport = 1024 + draw.of(3).below(60_000) as u16;
    }
    let protocol = key.protocol();
    (is_dnat || is_snat).then(|| match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => WideKey::v4(src, dst, sport, dport, protocol),
        _ => WideKey::v6(v6(src), v6(dst), sport, dport, protocol),
    })
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_flows_is_translated_at_one_end_and_always_alike() {
        let to = Ipv4Addr::new(10, 0, 1, 1);
        let keys = (0..1000).map(|port| WideKey::v4(Ipv4Addr::new(10, 0, 0, 1), to, port, 443, 6));
        let quality = LinkQuality { dnat: 0.3, ..LinkQuality::default() };
        let mut changed = 0;
        for key in keys {
            let Some(other) = translated(&key, 4, &quality) else { continue };
            changed += 1;
            assert_eq!((other.src(), other.sport()), (key.src(), key.sport()));
            assert_ne!((other.dst(), other.dport()), (key.dst(), key.dport()));
            assert_eq!(translated(&key, 4, &quality), Some(other));
            let snat = LinkQuality { snat: 1.0, ..LinkQuality::default() };
            let other = translated(&key, 4, &snat).expect("all are");
            assert_eq!((other.dst(), other.dport()), (key.dst(), key.dport()));
            assert_ne!(other.src(), key.src());
        }
        assert!((250..350).contains(&changed), "{changed}");
    }
}
