//! The table of routes that a switch looks addresses up in: DPDK's.

use std::net::IpAddr;
use std::sync::Arc;

use dpdk::{Eal, Fib4, Fib6};
use ipnet::IpNet;

use super::tables::{BuildLpm, Hop, Lpm, NO_ROUTE};

/// IPv4 and IPv6 routes in DPDK's forwarding tables.
#[derive(Debug)]
struct Fib {
    v4: Fib4,
    v6: Fib6,
}

impl Lpm for Fib {
    #[inline]
    fn lookup4(&self, addresses: &[u32], hops: &mut [u64]) {
        self.v4.lookup(addresses, hops);
    }

    #[inline]
    fn lookup6(&self, addresses: &[[u8; 16]], hops: &mut [u64]) {
        self.v6.lookup(addresses, hops);
    }
}

/// Builds tables in the EAL's memory: 64 MiB each, and twice that while one replaces another.
pub fn in_dpdk(eal: &Eal) -> Box<BuildLpm> {
    let eal = eal.clone();
    Box::new(move |routes: &[(IpNet, Hop)]| {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for &(to, hop) in routes {
            match to.addr() {
                IpAddr::V4(address) => v4.push((address, to.prefix_len(), hop)),
                IpAddr::V6(address) => v6.push((address, to.prefix_len(), hop)),
            }
        }
        let v4 = Fib4::build(&eal, &v4, NO_ROUTE)?;
        let v6 = Fib6::build(&eal, &v6, NO_ROUTE)?;
        Ok(Arc::new(Fib { v4, v6 }))
    })
}
