//! Packets that may have changed their flow on the way: NAT, load balancers, tunnels.
//!
//! A flow that is translated is missing at egress, and another is there that never entered. From
//! the numbers alone that is no different from a loss and a stranger, so every missing packet that
//! could be a stranger's is set aside as [`Rewritten`], and only the rest is lost: at least that.
//! Which flows a translation can lead to is an assumption, and this is all of it:
//!
//! * the protocol stays, ICMP and ICMPv6 being one (NAT64), and
//! * one end stays as it is, address and port (NAT, load balancers), or, of a flow of which no
//!   packet may have left under its own name, one port (translation of both ends, NAT64), of ICMP
//!   between the families the protocol alone;
//! * or one of the two flows is a tunnel's, which may stand for any number of others;
//! * the flow that it leads to does not enter the network itself in the same epoch.
//!
//! The bound: let a flow miss n packets, and let the flows that it may have become have m too many
//! together. At most m of the n left the network, so at least n - m were lost. Copies only add to
//! m, and to what was lost beyond n.
//!
//! A partner is named where the counts leave one only: one that fits by its number of packets, or
//! one that fits at all, from either side.

use std::collections::HashMap;
use std::net::IpAddr;

use super::entered::Entered;
use crate::report::{Change, Flow, Loss, Rewritten, Surplus};

/// Protocols that carry others: IP in IP, IPv6 in IPv4, GRE, ESP, AH, EtherIP, IPComp, L2TP, MPLS.
const TUNNELS: [u8; 9] = [4, 41, 47, 50, 51, 97, 108, 115, 137];

/// UDP ports of tunnels: L2TP, GTP-U, ESP, GRE, VXLAN (two), Geneve, MPLS.
const TUNNEL_PORTS: [u16; 8] = [1701, 2152, 4500, 4754, 4789, 8472, 6081, 6635];

const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Whether a flow may be a tunnel's.
fn is_tunnel(flow: &Flow) -> bool {
    let of_udp = |port| flow.proto == UDP && TUNNEL_PORTS.contains(&port);
    TUNNELS.contains(&flow.proto) || of_udp(flow.sport) || of_udp(flow.dport)
}

/// Something that a flow and what it is translated to have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Trait {
    Source(u8, IpAddr, u16),
    Destination(u8, IpAddr, u16),
    SourcePort(u8, u16),
    DestinationPort(u8, u16),
    /// Those that both of the above have.
    BothPorts(u8, u16, u16),
    /// ICMP that is IPv6 at egress, or is not, and was of the other family before.
    Icmp(bool),
}

/// The traits of a flow, ports and families among them where `loosely`: as one that others may have
/// become where `of_target`, else as one that may have become another.
fn traits(flow: &Flow, loosely: bool, of_target: bool) -> impl Iterator<Item = Trait> {
    let Flow { src, dst, sport, dport, proto } = *flow;
    let proto = if proto == ICMPV6 { ICMP } else { proto };
    let strict = [Trait::Source(proto, src, sport), Trait::Destination(proto, dst, dport)];
    let loose = [
        (sport != 0).then_some(Trait::SourcePort(proto, sport)),
        (dport != 0).then_some(Trait::DestinationPort(proto, dport)),
        (proto == ICMP).then_some(Trait::Icmp(src.is_ipv6() == of_target)),
    ];
    strict.into_iter().chain(loose.into_iter().flatten().filter(move |_| loosely))
}

/// Flows of one trait.
#[derive(Clone, Copy, Debug)]
struct Group {
    flows: usize,
    packets: u64,
    /// One of them, by position.
    one: usize,
}

/// Flows by their traits, and by traits and packets.
#[derive(Debug, Default)]
struct Index {
    by_trait: HashMap<Trait, Group>,
    by_count: HashMap<(Trait, u64), Group>,
}

/// Flows that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partner {
    None,
    One(usize),
    Several,
}

impl Partner {
    fn and(self, group: Option<&Group>) -> Self {
        match (self, group) {
            (partner, None) => partner,
            (Self::None, Some(Group { flows: 1, one, .. })) => Self::One(*one),
            (Self::One(at), Some(Group { flows: 1, one, .. })) if at == *one => self,
            _ => Self::Several,
        }
    }
}

impl Index {
    fn add(&mut self, at: usize, packets: u64, traits: impl Iterator<Item = Trait>) {
        let enter = |group: Option<&mut Group>| match group {
            Some(group) => {
                group.flows += 1;
                group.packets += packets;
                None
            }
            None => Some(Group { flows: 1, packets, one: at }),
        };
        for of in traits {
            if let Some(group) = enter(self.by_trait.get_mut(&of)) {
                self.by_trait.insert(of, group);
            }
            if let Some(group) = enter(self.by_count.get_mut(&(of, packets))) {
                self.by_count.insert((of, packets), group);
            }
        }
    }

    fn packets(&self, of: Trait) -> u64 {
        self.by_trait.get(&of).map_or(0, |group| group.packets)
    }

    fn partner(&self, traits: impl Iterator<Item = Trait>) -> Partner {
        traits.fold(Partner::None, |partner, of| partner.and(self.by_trait.get(&of)))
    }

    fn partner_of_count(&self, traits: impl Iterator<Item = Trait>, packets: u64) -> Partner {
        traits.fold(Partner::None, |partner, of| partner.and(self.by_count.get(&(of, packets))))
    }
}

/// The flows that others may have become.
#[derive(Debug)]
struct Targets<'a> {
    flows: Vec<&'a Surplus>,
    index: Index,
    /// Packets of all of them.
    packets: u64,
    /// Packets of those that are tunnels'.
    of_tunnels: u64,
}

impl<'a> Targets<'a> {
    fn new(surplus: &'a [Surplus], entered: &Entered<'_>) -> Self {
        let flows = surplus.iter();
        let flows = flows.filter(|of| of.stranger || !entered.of(&of.flow).is_entered());
        let mut targets =
            Self { flows: flows.collect(), index: Index::default(), packets: 0, of_tunnels: 0 };
        for (at, of) in targets.flows.iter().enumerate() {
            targets.packets += of.packets;
            targets.of_tunnels += if is_tunnel(&of.flow) { of.packets } else { 0 };
            let mut both = None;
            if of.flow.sport != 0 && of.flow.dport != 0 {
                both = Some(Trait::BothPorts(of.flow.proto, of.flow.sport, of.flow.dport));
            }
            targets.index.add(at, of.packets, traits(&of.flow, true, true).chain(both));
        }
        targets
    }

    /// Whether a port or family of a flow is one of theirs.
    fn fit_loosely(&self, flow: &Flow) -> bool {
        traits(flow, true, false).any(|of| self.index.by_trait.contains_key(&of))
    }

    /// Packets too many of all flows that `flow` may have become.
    fn packets_for(&self, flow: &Flow, loosely: bool) -> u64 {
        if is_tunnel(flow) {
            return self.packets;
        }
        let packets = traits(flow, loosely, false).map(|of| match of {
            // Who shares an end that has a port shares the port.
            Trait::Source(_, _, port) | Trait::Destination(_, _, port) if loosely && port != 0 => 0,
            of => self.index.packets(of),
        });
        let both = Trait::BothPorts(flow.proto, flow.sport, flow.dport);
        let twice = if loosely { self.index.packets(both) } else { 0 };
        packets.sum::<u64>() - twice + self.of_tunnels
    }
}

/// Sets aside of `losses` what may be packets that `surplus` has too many, and gives it. Of flows
/// in `uncounted` so many more packets are missing than the losses say.
pub(super) fn set_aside(
    losses: &mut Vec<Loss>,
    surplus: &[Surplus],
    entered: &Entered<'_>,
    uncounted: &HashMap<Flow, u64>,
) -> Vec<Rewritten> {
    if losses.is_empty() || surplus.is_empty() {
        return Vec::new();
    }
    let targets = Targets::new(surplus, entered);
    if targets.flows.is_empty() {
        return Vec::new();
    }
    let mut victims = Index::default();
    let loosely: Vec<bool> = losses
        .iter()
        .enumerate()
        .map(|(at, Loss { flow, lost, .. })| {
            let missing = *lost + uncounted.get(flow).copied().unwrap_or(0);
            let loosely = targets.fit_loosely(flow) && entered.of(flow).least <= missing;
            victims.add(at, *lost, traits(flow, loosely, false));
            loosely
        })
        .collect();

    let mut rewritten = Vec::new();
    for (at, loss) in losses.iter_mut().enumerate() {
        let Loss { flow, lost, .. } = *loss;
        let away = targets.packets_for(&flow, loosely[at]).min(lost);
        if away == 0 {
            continue;
        }
        (loss.lost, loss.at_least) = (lost - away, true);
        let own = || traits(&flow, loosely[at], false);
        let partner = |of_count: bool| {
            let index = &targets.index;
            let found =
                if of_count { index.partner_of_count(own(), lost) } else { index.partner(own()) };
            let Partner::One(found) = found else { return None };
            let target = targets.flows[found];
            let theirs = traits(&target.flow, true, false);
            let back = if of_count {
                victims.partner_of_count(theirs, target.packets)
            } else {
                victims.partner(theirs)
            };
            (back == Partner::One(at)).then_some(target)
        };
        let one = (targets.of_tunnels == 0 && !is_tunnel(&flow))
            .then(|| partner(true).or_else(|| partner(false)));
        let to = one.flatten().map(|target| target.flow);
        rewritten.push(Rewritten { from: flow, to, packets: away, what: Change::Address });
    }
    losses.retain(|loss| loss.lost > 0);
    rewritten
}
