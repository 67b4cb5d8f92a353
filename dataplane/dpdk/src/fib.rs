//! Longest prefix match over DPDK's forwarding tables (`rte_fib`, `rte_fib6`).
//!
//! A table is built whole and never changed: any number of lcores may look addresses up in it while
//! the next one is built beside it. Each takes 32 MiB for the first 24 bits, and 512 bytes for each
//! block of 8 bits more that a longer prefix opens.

use std::ffi::CString;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::eal::Eal;
use crate::error::{Error, Result, check, last_error};

/// What a route leads to: a number below 2^15, whose meaning is the caller's.
pub type NextHop = u16;

/// Next hops and blocks have 15 bits; the sixteenth tells one from the other.
const MOST: u32 = (1 << 15) - 1;

/// IPv4 routes.
#[derive(Debug)]
pub struct Fib4 {
    fib: NonNull<dpdk_sys::rte_fib>,
    /// The table's memory is the EAL's.
    _eal: Eal,
}

/// IPv6 routes.
#[derive(Debug)]
pub struct Fib6 {
    fib: NonNull<dpdk_sys::rte_fib6>,
    /// The table's memory is the EAL's.
    _eal: Eal,
}

// SAFETY: freeing a table is not bound to a thread.
unsafe impl Send for Fib4 {}
// SAFETY: looking up only reads, and nothing changes a table once it is built.
unsafe impl Sync for Fib4 {}
// SAFETY: as for `Fib4`.
unsafe impl Send for Fib6 {}
// SAFETY: as for `Fib4`.
unsafe impl Sync for Fib6 {}

impl Fib4 {
    /// A table of `routes`, each an address, the length of its prefix (bits behind it are ignored)
    /// and a next hop; a later one replaces an earlier one of the same prefix. Addresses without a
    /// route give `no_route`.
    ///
    /// # Errors
    /// When there is not as much memory, a next hop has more than 15 bits or a prefix more than 32,
    /// or more than 32,766 prefixes are longer than 24 bits.
    pub fn build(eal: &Eal, routes: &[(Ipv4Addr, u8, NextHop)], no_route: NextHop) -> Result<Self> {
        let what = || format!("a table of {} IPv4 routes", routes.len());
        check_routes(routes.iter().map(|&(_, depth, hop)| (depth, hop)), 32, no_route, what)?;
        // The default route is what an address without another one gives.
        let default = routes.iter().rev().find(|(_, depth, _)| *depth == 0);
        let no_route = default.map_or(no_route, |&(_, _, hop)| hop);
        let blocks = routes.iter().filter(|(_, depth, _)| *depth > 24).count();
        let (name, wanted) = wanted(routes.len(), blocks, no_route);
        let wanted = dpdk_sys::calumma_fib { name: name.as_ptr(), ..wanted };
        // SAFETY: the EAL is initialised; the name is NUL-terminated, and copied.
        let fib = NonNull::new(unsafe { dpdk_sys::calumma_fib_create(&wanted) });
        let fib = fib.ok_or_else(|| refused(what(), blocks))?;
        let table = Self { fib, _eal: eal.clone() };
        for &(address, depth, hop) in routes.iter().filter(|(_, depth, _)| *depth > 0) {
            // SAFETY: the table lives, and nobody else knows it yet.
            let code =
                unsafe { dpdk_sys::rte_fib_add(fib.as_ptr(), address.into(), depth, hop.into()) };
            check(code, || format!("adding a route to {address}/{depth}"))?;
        }
        Ok(table)
    }

    /// Looks up all `addresses`, as numbers; the next hop of the i-th goes to the i-th place of
    /// `hops`. One call for a burst, and a memory access or two for each address.
    ///
    /// # Panics
    /// When there are fewer places than addresses.
    #[inline]
    pub fn lookup(&self, addresses: &[u32], hops: &mut [u64]) {
        let hops = &mut hops[..addresses.len()];
        // SAFETY: the table lives; both arrays have as many places, and addresses are only read.
        unsafe {
            dpdk_sys::rte_fib_lookup_bulk(
                self.fib.as_ptr(),
                addresses.as_ptr().cast_mut(),
                hops.as_mut_ptr(),
                addresses.len() as i32,
            );
        }
    }
}

impl Fib6 {
    /// A table of IPv6 routes: see [`Fib4::build`].
    ///
    /// # Errors
    /// When there is not as much memory, a next hop has more than 15 bits or a prefix more than
    /// 128, or the prefixes need more than 32,766 blocks: one for each 8 bits behind the first
    /// 24.
    pub fn build(eal: &Eal, routes: &[(Ipv6Addr, u8, NextHop)], no_route: NextHop) -> Result<Self> {
        let what = || format!("a table of {} IPv6 routes", routes.len());
        check_routes(routes.iter().map(|&(_, depth, hop)| (depth, hop)), 128, no_route, what)?;
        let default = routes.iter().rev().find(|(_, depth, _)| *depth == 0);
        let no_route = default.map_or(no_route, |&(_, _, hop)| hop);
        let blocks = routes
            .iter()
            .map(|(_, depth, _)| usize::from(depth.saturating_sub(24)).div_ceil(8))
            .sum();
        let (name, wanted) = wanted(routes.len(), blocks, no_route);
        let wanted = dpdk_sys::calumma_fib { name: name.as_ptr(), ..wanted };
        // SAFETY: the EAL is initialised; the name is NUL-terminated, and copied.
        let fib = NonNull::new(unsafe { dpdk_sys::calumma_fib6_create(&wanted) });
        let fib = fib.ok_or_else(|| refused(what(), blocks))?;
        let table = Self { fib, _eal: eal.clone() };
        for (address, depth, hop) in routes.iter().filter(|(_, depth, _)| *depth > 0) {
            let octets = address.octets();
            // SAFETY: the table lives, nobody else knows it yet, and an address has 16 bytes.
            let code =
                unsafe { dpdk_sys::calumma_fib6_add(fib.as_ptr(), octets.as_ptr(), *depth, *hop) };
            check(code, || format!("adding a route to {address}/{depth}"))?;
        }
        Ok(table)
    }

    /// Looks up all `addresses`: see [`Fib4::lookup`]. A memory access for each 8 bits, behind the
    /// first 24, of the longest prefixes around an address.
    ///
    /// # Panics
    /// When there are fewer places than addresses.
    #[inline]
    pub fn lookup(&self, addresses: &[[u8; 16]], hops: &mut [u64]) {
        let hops = &mut hops[..addresses.len()];
        // SAFETY: the table lives; both arrays have as many places, and addresses are only read.
        unsafe {
            dpdk_sys::calumma_fib6_lookup(
                self.fib.as_ptr(),
                addresses.as_ptr().cast(),
                hops.as_mut_ptr(),
                addresses.len() as i32,
            );
        }
    }
}

impl Drop for Fib4 {
    fn drop(&mut self) {
        // SAFETY: the table lives, and nobody can use it any more.
        unsafe { dpdk_sys::rte_fib_free(self.fib.as_ptr()) };
    }
}

impl Drop for Fib6 {
    fn drop(&mut self) {
        // SAFETY: the table lives, and nobody can use it any more.
        unsafe { dpdk_sys::rte_fib6_free(self.fib.as_ptr()) };
    }
}

/// Refuses what the library would take and then get wrong.
fn check_routes(
    mut routes: impl Iterator<Item = (u8, NextHop)>,
    longest: u8,
    no_route: NextHop,
    what: impl Fn() -> String,
) -> Result<()> {
    let fits = |hop: NextHop| u32::from(hop) <= MOST;
    if fits(no_route) && routes.all(|(depth, hop)| depth <= longest && fits(hop)) {
        return Ok(());
    }
    let reason = format!("a next hop has 15 bits, a prefix at most {longest}");
    Err(Error::Call { what: what(), reason })
}

/// A name that no other table has, and a table's measures; the name's address is left to the
/// caller, who owns it.
fn wanted(routes: usize, blocks: usize, no_route: u16) -> (CString, dpdk_sys::calumma_fib) {
    static TABLES: AtomicU32 = AtomicU32::new(0);
    let number = TABLES.fetch_add(1, Ordering::Relaxed);
    let name = CString::new(format!("calumma{number}")).unwrap_or_default();
    let wanted = dpdk_sys::calumma_fib {
        name: std::ptr::null(),
        // The library's nodes come from a pool that can't be empty.
        most_routes: routes.max(64) as u32,
        // One is kept back by the library, and some are in use twice while a prefix is split.
        blocks: (blocks as u32).saturating_add(16).min(MOST.max(blocks as u32)),
        no_route,
    };
    (name, wanted)
}

fn refused(what: String, blocks: usize) -> Error {
    let reason = if blocks as u64 >= u64::from(MOST) {
        format!("{blocks} blocks for long prefixes are more than its {MOST}; summarise routes")
    } else {
        format!("{}; give the EAL more memory (-m, hugepages)", last_error().reason())
    };
    Error::Call { what, reason }
}
