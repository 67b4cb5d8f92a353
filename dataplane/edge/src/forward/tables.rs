//! What lcores forward by: routes, next hops and neighbours, as of one moment.
//!
//! [`Tables`] never change. The slow path publishes new ones, in which only what differs has been
//! built anew, and lcores look once a burst whether there are any (`arc_swap`): readers pay a load
//! and a comparison, and wait for nobody. Old tables are dropped by the slow path, never by an
//! lcore: see [`Publisher`].

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

use super::address::Mac;
use super::config::{Interface, InterfaceId, PassTo, Plan, Target};
use crate::config::Role;
use crate::sync::{Published, Reader};

/// Number of a route's target, as a table of routes gives it; below 2^15.
pub type Hop = u16;

/// What an address without a route gives. Every other number is a position among the sets of next
/// hops.
pub const NO_ROUTE: Hop = 0;

/// Longest prefix match for bursts of addresses.
pub trait Lpm: Send + Sync + fmt::Debug {
    /// The hop of each IPv4 address (as a number) goes to the same place of `hops`, which has as
    /// many.
    fn lookup4(&self, addresses: &[u32], hops: &mut [u64]);
    /// The same for IPv6 addresses, as bytes in the order of the wire.
    fn lookup6(&self, addresses: &[[u8; 16]], hops: &mut [u64]);
}

/// Builds an [`Lpm`] of routes; addresses without one give [`NO_ROUTE`].
pub type BuildLpm = dyn Fn(&[(IpNet, Hop)]) -> anyhow::Result<Arc<dyn Lpm>> + Send;

/// A neighbour that can be sent to, and what a packet needs to get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// Ethernet addresses of the frame: the neighbour's, and that of the interface it is on.
    pub addresses: [u8; 12],
    /// Position of the interface's port.
    pub port: u16,
    /// What is on the other side of the port.
    pub role: Role,
    /// The VLAN tag of the interface's frames.
    pub vlan: Option<u16>,
    /// Longest IP packet, in bytes.
    pub mtu: u16,
    /// The same where frames have no VLAN tag, else 0.
    pub untagged_mtu: u16,
}

/// Where a route leads, with what is known of neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HopTarget {
    /// Nowhere: there is no route.
    None,
    /// To the switch itself.
    Own,
    /// To everybody on a link.
    Broadcast,
    /// Nowhere, as configured.
    Discard,
    /// To a neighbour on the link of an interface.
    Link(InterfaceId),
    /// Over one of several next hops.
    Via {
        /// Those that can be sent to; flows are spread over them.
        ready: Box<[Adjacency]>,
        /// The one to solicit where none is ready.
        first: (InterfaceId, IpAddr),
    },
}

/// What lcores need to know of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutInterface {
    /// Position of its port.
    pub port: u16,
    /// What is on the other side.
    pub role: Role,
    /// The VLAN tag of its frames.
    pub vlan: Option<u16>,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its link-local IPv6 address.
    pub link_local: Ipv6Addr,
    /// Longest IP packet, in bytes.
    pub mtu: u16,
}

/// A port's interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PortInterfaces {
    untagged: Option<InterfaceId>,
    tagged: Vec<(u16, InterfaceId)>,
    /// The shortest of their MTUs, in bytes; 0 of a port that has none.
    mtu: u16,
}

/// Neighbours with known Ethernet addresses. IPv4 addresses are mapped into IPv6.
type Neighbours = HashMap<(InterfaceId, u128), Adjacency, foldhash::fast::RandomState>;

/// Everything that lcores forward by.
#[derive(Debug)]
pub struct Tables {
    lpm: Arc<dyn Lpm>,
    targets: Arc<[Target]>,
    hops: Vec<HopTarget>,
    /// The neighbour of each hop that has one that is ready and no other, else
    /// [`Adjacency::NONE`].
    single: Vec<Adjacency>,
    interfaces: Arc<[OutInterface]>,
    by_port: Arc<[PortInterfaces]>,
    neighbours: Neighbours,
    /// Tables have another number than those before where interfaces may.
    pub generation: u32,
    /// The port for frames that are not routed; none: they are dropped.
    pub unknown: Option<PassTo>,
    /// The port for multicast and broadcast; none: they are dropped.
    pub multicast: Option<PassTo>,
    /// EtherType of the header that packets from the fabric carry their mark in, if in one of
    /// their own.
    pub shim: Option<u16>,
}

impl Tables {
    /// Tables of a plan, without neighbours.
    ///
    /// # Errors
    /// When there is no memory for the routes, or they are more than a table takes.
    pub fn new(plan: &Plan, build: &BuildLpm) -> anyhow::Result<Self> {
        let mut targets: Vec<Target> = Vec::new();
        let mut numbers: HashMap<&Target, Hop> = HashMap::new();
        let mut routes = Vec::with_capacity(plan.routes.len());
        for (to, target) in &plan.routes {
            let next = numbers.len() + 1;
            let number = match numbers.get(target) {
                Some(&number) => number,
                None => {
                    let number = Hop::try_from(next).ok().filter(|&number| number < 1 << 15);
                    let Some(number) = number else {
                        anyhow::bail!("routes lead to more than 32,766 different sets of next hops")
                    };
                    targets.push(target.clone());
                    numbers.insert(target, number);
                    number
                }
            };
            routes.push((*to, number));
        }
        let mut by_port = vec![PortInterfaces::default(); plan.ports];
        for (id, interface) in plan.interfaces.iter().enumerate() {
            let of_port = &mut by_port[interface.port];
            let is_first = of_port.untagged.is_none() && of_port.tagged.is_empty();
            of_port.mtu = if is_first { interface.mtu } else { of_port.mtu.min(interface.mtu) };
            match interface.vlan {
                None => of_port.untagged = Some(id as InterfaceId),
                Some(vlan) => of_port.tagged.push((vlan, id as InterfaceId)),
            }
        }
        let mut tables = Self {
            lpm: build(&routes)?,
            targets: targets.into(),
            hops: Vec::new(),
            single: Vec::new(),
            interfaces: plan.interfaces.iter().map(OutInterface::of).collect(),
            by_port: by_port.into(),
            neighbours: Neighbours::default(),
            generation: 0,
            unknown: plan.unknown,
            multicast: plan.multicast,
            shim: plan.shim,
        };
        tables.set_neighbours(std::iter::empty());
        Ok(tables)
    }

    /// The same routes with these neighbours. Costs a few nanoseconds a neighbour and a next hop;
    /// the table of routes is shared.
    #[must_use]
    pub fn with_neighbours(
        &self,
        neighbours: impl Iterator<Item = ((InterfaceId, IpAddr), Mac)>,
    ) -> Self {
        let mut tables = Self {
            lpm: self.lpm.clone(),
            targets: self.targets.clone(),
            hops: Vec::new(),
            single: Vec::new(),
            interfaces: self.interfaces.clone(),
            by_port: self.by_port.clone(),
            neighbours: Neighbours::default(),
            ..*self
        };
        tables.set_neighbours(neighbours);
        tables
    }

    fn set_neighbours(&mut self, all: impl Iterator<Item = ((InterfaceId, IpAddr), Mac)>) {
        let known = |((interface, address), mac): ((InterfaceId, IpAddr), Mac)| {
            let out = self.interfaces.get(usize::from(interface))?;
            Some(((interface, number(address)), Adjacency::new(mac, out)))
        };
        self.neighbours = all.filter_map(known).collect();
        let neighbours = &self.neighbours;
        let of_target = |target: &Target| match target {
            Target::Own => HopTarget::Own,
            Target::Broadcast => HopTarget::Broadcast,
            Target::Discard => HopTarget::Discard,
            Target::Link(interface) => HopTarget::Link(*interface),
            Target::Via(all) => {
                let adjacency = |&(interface, address): &(InterfaceId, IpAddr)| {
                    neighbours.get(&(interface, number(address))).copied()
                };
                match all.first() {
                    Some(&first) => {
                        HopTarget::Via { ready: all.iter().filter_map(adjacency).collect(), first }
                    }
                    None => HopTarget::None,
                }
            }
        };
        self.hops =
            std::iter::once(HopTarget::None).chain(self.targets.iter().map(of_target)).collect();
        let single = |hop: &HopTarget| match hop {
            HopTarget::Via { ready, .. } if ready.len() == 1 => ready[0],
            _ => Adjacency::NONE,
        };
        self.single = self.hops.iter().map(single).collect();
    }

    /// The table of routes.
    #[inline]
    pub fn lpm(&self) -> &dyn Lpm {
        &*self.lpm
    }

    /// What a hop's number stands for.
    #[inline]
    pub fn hop(&self, number: u64) -> &HopTarget {
        self.hops.get(number as usize).unwrap_or(&HopTarget::None)
    }

    /// The neighbour of a hop's number, where there is one that is ready and no other; else one
    /// that no packet is short enough for.
    #[inline(always)]
    pub fn single(&self, number: u64) -> &Adjacency {
        self.single.get(number as usize).unwrap_or(&Adjacency::NONE)
    }

    /// An interface.
    #[inline]
    pub fn interface(&self, id: InterfaceId) -> Option<&OutInterface> {
        self.interfaces.get(usize::from(id))
    }

    /// The Ethernet address that a port's untagged frames are routed by, and the interface they
    /// belong to.
    #[inline]
    pub fn untagged(&self, port: usize) -> Option<(Mac, InterfaceId)> {
        let id = self.by_port.get(port)?.untagged?;
        Some((self.interface(id)?.mac, id))
    }

    /// Longest IP packet, in bytes, that may leave by any interface of a port; 0 where it has none.
    #[inline]
    pub fn port_mtu(&self, port: usize) -> u16 {
        self.by_port.get(port).map_or(0, |of_port| of_port.mtu)
    }

    /// An interface of a port: that of its untagged frames, where it has one.
    pub fn any_on(&self, port: usize) -> Option<InterfaceId> {
        let of_port = self.by_port.get(port)?;
        of_port.untagged.or_else(|| of_port.tagged.first().map(|&(_, interface)| interface))
    }

    /// The interface that frames of a port belong to, by their VLAN tag. VLAN 0 is a priority, and
    /// no VLAN.
    #[inline]
    pub fn arriving(&self, port: usize, vlan: Option<u16>) -> Option<InterfaceId> {
        let of_port = self.by_port.get(port)?;
        match vlan {
            None | Some(0) => of_port.untagged,
            Some(vlan) => {
                of_port.tagged.iter().find(|(tag, _)| *tag == vlan).map(|&(_, interface)| interface)
            }
        }
    }

    /// The neighbour with this address on the link of an interface, where it is known.
    #[inline]
    pub fn neighbour(&self, interface: InterfaceId, address: IpAddr) -> Option<&Adjacency> {
        self.neighbours.get(&(interface, number(address)))
    }
}

impl Adjacency {
    /// None: its MTU is 0.
    pub const NONE: Self =
        Self { addresses: [0; 12], port: 0, role: Role::Host, vlan: None, mtu: 0, untagged_mtu: 0 };

    /// A neighbour with the Ethernet address `mac`, on the link of `out`.
    pub fn new(mac: Mac, out: &OutInterface) -> Self {
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&mac.0);
        addresses[6..].copy_from_slice(&out.mac.0);
        let untagged_mtu = if out.vlan.is_none() { out.mtu } else { 0 };
        let OutInterface { port, role, vlan, mtu, .. } = *out;
        Self { addresses, port, role, vlan, mtu, untagged_mtu }
    }

    /// One of several next hops for a flow; none where none is ready.
    #[inline]
    pub fn choose(ready: &[Self], hash: impl FnOnce() -> u32) -> Option<&Self> {
        match ready {
            [] => None,
            [only] => Some(only),
            several => {
                let at = (u64::from(hash()) * several.len() as u64) >> 32;
                several.get(at as usize)
            }
        }
    }
}

impl OutInterface {
    fn of(interface: &Interface) -> Self {
        Self {
            port: interface.port as u16,
            role: interface.role,
            vlan: interface.vlan,
            mac: interface.mac,
            link_local: interface.link_local(),
            mtu: interface.mtu,
        }
    }
}

/// An address as a number, IPv4 mapped into IPv6 (RFC 4291, section 2.5.5.2).
#[inline]
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => 0xFFFF << 32 | u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The end from which new tables are published.
#[derive(Debug)]
pub struct Publisher {
    current: Arc<Published<Tables>>,
    /// Tables that some lcore may still use: dropped once none does, so that no lcore ever frees
    /// them.
    retired: Vec<Arc<Tables>>,
}

/// The end from which an lcore reads; see [`Publisher::reader`].
pub type TablesReader = Reader<Tables>;

impl Publisher {
    /// Publishes its first tables.
    pub fn new(tables: Tables) -> Self {
        Self { current: Arc::new(Published::from_pointee(tables)), retired: Vec::new() }
    }

    /// A reader for one lcore. Its `load`, once a burst, gives the tables published last.
    pub fn reader(&self) -> TablesReader {
        TablesReader::new(self.current.clone())
    }

    /// The tables published last.
    pub fn current(&self) -> Arc<Tables> {
        self.current.load_full()
    }

    /// Lets lcores forward by `tables` from their next burst on.
    pub fn publish(&mut self, tables: Tables) {
        self.retired.push(self.current.swap(Arc::new(tables)));
        self.drop_unused();
    }

    /// Drops tables that no lcore uses any more.
    pub fn drop_unused(&mut self) {
        self.retired.retain(|tables| Arc::strong_count(tables) > 1);
    }
}
