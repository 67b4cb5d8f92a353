//! Tables of routes give what a walk over all prefixes gives, from several threads at once.

mod common;

use std::net::{Ipv4Addr, Ipv6Addr};

use dpdk::{Fib4, Fib6, NextHop};

/// A generator that is good enough to draw routes (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The longest prefix around `address`, the last of its kind, by looking at all of them. Addresses
/// are left-aligned in 128 bits.
fn walk(routes: &[(u128, u8, NextHop)], address: u128, no_route: NextHop) -> u64 {
    let mask = |depth: u8| u128::MAX.checked_shl(128 - u32::from(depth)).unwrap_or(0);
    let around = routes.iter().filter(|(to, depth, _)| (to ^ address) & mask(*depth) == 0);
    u64::from(around.max_by_key(|(_, depth, _)| *depth).map_or(no_route, |(_, _, hop)| *hop))
}

#[test]
fn tables_agree_with_a_walk_over_all_prefixes() {
    let eal = common::eal(1, &["-m", "512"]);
    let mut draw = Draw(7);
    for round in 0..8 {
        let count = [0, 1, 40, 3000][round % 4];
        // Few bits vary, so that prefixes nest and addresses find them.
        let mut routes4 = Vec::new();
        let mut routes6 = Vec::new();
        for hop in 0..count {
            let hop = hop as NextHop;
            let v4 = 0x0A00_0000 | draw.next() as u32 & 0x0003_0F0F;
            routes4.push((Ipv4Addr::from(v4), draw.below(33) as u8, hop));
            let v6 = 0x2001_0DB8_u128 << 96 | u128::from(draw.next() & 0x0303_0000_0000_0303) << 32;
            routes6.push((Ipv6Addr::from(v6), draw.below(129) as u8, hop));
        }
        let (table4, table6) = match round {
            // Every depth, the default route included.
            0..4 => (
                Fib4::build(&eal, &routes4, 0x7FFF).unwrap(),
                Fib6::build(&eal, &routes6, 0x7FFF).unwrap(),
            ),
            _ => {
                routes4.retain(|(_, depth, _)| *depth > 0);
                routes6.retain(|(_, depth, _)| *depth > 0);
                (
                    Fib4::build(&eal, &routes4, 0x7FFF).unwrap(),
                    Fib6::build(&eal, &routes6, 0x7FFF).unwrap(),
                )
            }
        };
        let list4: Vec<_> = routes4
            .iter()
            .map(|&(to, depth, hop)| (u128::from(u32::from(to)) << 96, depth, hop))
            .collect();
        let list6: Vec<_> =
            routes6.iter().map(|&(to, depth, hop)| (u128::from(to), depth, hop)).collect();
        let asked4: Vec<u32> =
            (0..777).map(|_| 0x0A00_0000 | draw.next() as u32 & 0x0107_1F1F).collect();
        let asked6: Vec<u128> = (0..777)
            .map(|_| 0x2001_0DB8_u128 << 96 | u128::from(draw.next() & 0x0303_0000_0000_0707) << 32)
            .collect();
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    let mut hops = vec![0; 777];
                    table4.lookup(&asked4, &mut hops);
                    for (&address, &hop) in asked4.iter().zip(&hops) {
                        let wanted = walk(&list4, u128::from(address) << 96, 0x7FFF);
                        assert_eq!(hop, wanted, "{} in round {round}", Ipv4Addr::from(address));
                    }
                    let octets: Vec<_> = asked6.iter().map(|ip| ip.to_be_bytes()).collect();
                    table6.lookup(&octets, &mut hops);
                    for (&address, &hop) in asked6.iter().zip(&hops) {
                        let wanted = walk(&list6, address, 0x7FFF);
                        assert_eq!(hop, wanted, "{} in round {round}", Ipv6Addr::from(address));
                    }
                });
            }
        });
    }

    let wide = Fib4::build(&eal, &[(Ipv4Addr::LOCALHOST, 32, 1 << 15)], 0).unwrap_err();
    assert!(wide.to_string().contains("15 bits"), "{wide}");
    let long = Fib6::build(&eal, &[(Ipv6Addr::LOCALHOST, 129, 0)], 0).unwrap_err();
    assert!(long.to_string().contains("at most 128"), "{long}");
    let many: Vec<_> = (0..40_000_u32).map(|n| (Ipv4Addr::from(n << 8), 32, 0)).collect();
    let many = Fib4::build(&eal, &many, 0).unwrap_err();
    assert!(many.to_string().contains("summarise routes"), "{many}");
}
