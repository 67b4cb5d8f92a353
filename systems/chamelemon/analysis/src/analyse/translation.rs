//! Packets that may have changed their flow on the way: NAT, load balancers, tunnels.
//!
//! A flow that is translated is missing at egress, and another is there that never entered. From
//! the numbers alone that is no different from a loss and a stranger, so every missing packet that
//! could be a stranger's is set aside as [`Rewritten`], and only the rest is lost: at least that.
//! Which flows a translation can lead to is an assumption, and this is all of it:
//!
//! * the protocol stays, ICMP and ICMPv6 being one (NAT64), and
//! * one end stays as it is, address and port (NAT, load balancers), or, of a flow of which it may
//!   be that no packet left under its own name, nothing else (translation of both ends, NAT64):
//!   where a flow is translated at both ends, all of it becomes one other;
//! * or one of the two flows is a tunnel's, which may stand for any number of others;
//! * the flow that it leads to does not enter the network itself in the same epoch.
//!
//! The bound: let a flow miss n packets, and let the flows that it may have become have m too many
//! together, or the one of them that has most where nothing else than the protocol stays. At most m
//! of the n left the network, so at least n - m were lost. Copies only add to m, and to what was
//! lost beyond n.
//!
//! A partner is named where the counts leave one only: one that fits by its number of packets, or
//! one that fits at all, from either side.

use std::borrow::Cow;
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
    Protocol(u8),
}

impl Trait {
    /// The ends of a flow, of which a translation leaves one.
    fn ends(flow: &Flow) -> [Self; 2] {
        let Flow { src, dst, sport, dport, .. } = *flow;
        let protocol = protocol(flow);
        [Self::Source(protocol, src, sport), Self::Destination(protocol, dst, dport)]
    }

    fn of_protocol(flow: &Flow) -> [Self; 1] {
        [Self::Protocol(protocol(flow))]
    }
}

/// The protocol of a flow as a translation leaves it.
fn protocol(flow: &Flow) -> u8 {
    if flow.proto == ICMPV6 { ICMP } else { flow.proto }
}

/// Flows of one trait.
#[derive(Clone, Copy, Debug)]
struct Group {
    flows: usize,
    packets: u64,
    /// Packets of the one that has most.
    most: u64,
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
    fn add(&mut self, at: usize, packets: u64, traits: &[Trait]) {
        let enter = |group: Option<&mut Group>| match group {
            Some(group) => {
                group.flows += 1;
                group.packets += packets;
                group.most = group.most.max(packets);
                None
            }
            None => Some(Group { flows: 1, packets, most: packets, one: at }),
        };
        for &of in traits {
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

    fn most(&self, of: Trait) -> u64 {
        self.by_trait.get(&of).map_or(0, |group| group.most)
    }

    fn partner(&self, traits: &[Trait]) -> Partner {
        let groups = traits.iter().map(|of| self.by_trait.get(of));
        groups.fold(Partner::None, Partner::and)
    }

    fn partner_of_count(&self, traits: &[Trait], packets: u64) -> Partner {
        let groups = traits.iter().map(|&of| self.by_count.get(&(of, packets)));
        groups.fold(Partner::None, Partner::and)
    }
}

/// The flows that others may have become.
#[derive(Debug)]
pub(super) struct Targets<'a> {
    flows: Vec<&'a Surplus>,
    index: Index,
    /// Packets of all of them.
    packets: u64,
    /// Packets of those that are tunnels'.
    of_tunnels: u64,
}

impl<'a> Targets<'a> {
    /// Those of `surplus` that have not entered, as far as that is known.
    pub(super) fn new(surplus: &'a [Surplus], entered: &Entered<'_>) -> Self {
        let flows = surplus.iter();
        let flows = flows.filter(|of| of.stranger || !entered.of(&of.flow).is_entered());
        let mut targets =
            Self { flows: flows.collect(), index: Index::default(), packets: 0, of_tunnels: 0 };
        for (at, of) in targets.flows.iter().enumerate() {
            targets.packets += of.packets;
            targets.index.add(at, of.packets, &Trait::ends(&of.flow));
            if is_tunnel(&of.flow) {
                targets.of_tunnels += of.packets;
            } else {
                targets.index.add(at, of.packets, &Trait::of_protocol(&of.flow));
            }
        }
        targets
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Packets too many of all flows that `flow` may have become, where `wholly` both of its ends
    /// may have been translated.
    pub(super) fn packets_for(&self, flow: &Flow, wholly: bool) -> u64 {
        if is_tunnel(flow) {
            return self.packets;
        }
        let by_ends = Trait::ends(flow).iter().map(|&end| self.index.packets(end)).sum::<u64>();
        let [of_protocol] = Trait::of_protocol(flow);
        let by_protocol = if wholly { self.index.most(of_protocol) } else { 0 };
        by_ends.max(by_protocol) + self.of_tunnels
    }

    /// The only flow that `loss`, at position `at` among the `victims`, may have become, if it is
    /// the only victim that may have become that: by an end, or, where `wholly`, by the protocol.
    fn partner(&self, at: usize, loss: &Loss, victims: &Index, wholly: bool) -> Option<Flow> {
        let by_ends = self.partner_by(at, loss, victims, Trait::ends);
        let by_protocol = || self.partner_by(at, loss, victims, Trait::of_protocol);
        by_ends.or_else(|| wholly.then(by_protocol).flatten())
    }

    /// The same by some traits of the flows: one that fits by its number of packets as well, else
    /// one that fits.
    fn partner_by<const N: usize>(
        &self,
        at: usize,
        loss: &Loss,
        victims: &Index,
        traits: fn(&Flow) -> [Trait; N],
    ) -> Option<Flow> {
        let own = traits(&loss.flow);
        let target = |found: Partner| match found {
            Partner::One(found) => Some(self.flows[found]),
            Partner::None | Partner::Several => None,
        };
        let of_count = target(self.index.partner_of_count(&own, loss.lost));
        let of_count = of_count.filter(|of| {
            victims.partner_of_count(&traits(&of.flow), of.packets) == Partner::One(at)
        });
        let any = || {
            let target = target(self.index.partner(&own));
            target.filter(|of| victims.partner(&traits(&of.flow)) == Partner::One(at))
        };
        of_count.or_else(any).map(|target| target.flow)
    }
}

/// What flows have too many, with `more` of some.
pub(super) fn with_more<'s>(
    surplus: &'s [Surplus],
    mut more: HashMap<Flow, u64>,
    entered: &Entered<'_>,
) -> Cow<'s, [Surplus]> {
    if more.is_empty() {
        return Cow::Borrowed(surplus);
    }
    let mut all = surplus.to_vec();
    for surplus in &mut all {
        surplus.packets += more.remove(&surplus.flow).unwrap_or(0);
    }
    all.extend(more.into_iter().map(|(flow, packets)| {
        let stranger = entered.of(&flow).is_stranger();
        Surplus { flow, packets, partial: true, stranger }
    }));
    Cow::Owned(all)
}

/// Sets aside of `losses` what may be packets that `surplus` has too many, and gives it. Of flows
/// in `uncounted` so many more packets are missing than the losses say. Where `others` have any
/// number too many that is not known, all of a flow may be among them.
pub(super) fn set_aside(
    losses: &mut Vec<Loss>,
    surplus: &[Surplus],
    entered: &Entered<'_>,
    uncounted: &HashMap<Flow, u64>,
    others: bool,
) -> Vec<Rewritten> {
    if losses.is_empty() || (surplus.is_empty() && !others) {
        return Vec::new();
    }
    let targets = Targets::new(surplus, entered);
    if targets.is_empty() && !others {
        return Vec::new();
    }
    let mut victims = Index::default();
    let wholly: Vec<bool> = losses
        .iter()
        .enumerate()
        .map(|(at, Loss { flow, lost, .. })| {
            let missing = *lost + uncounted.get(flow).copied().unwrap_or(0);
            let wholly = entered.of(flow).least <= missing;
            victims.add(at, *lost, &Trait::ends(flow));
            if wholly {
                victims.add(at, *lost, &Trait::of_protocol(flow));
            }
            wholly
        })
        .collect();

    let mut rewritten = Vec::new();
    for (at, loss) in losses.iter_mut().enumerate() {
        let found = *loss;
        let Loss { flow, lost, .. } = found;
        let away = match others && wholly[at] {
            true => lost,
            false => targets.packets_for(&flow, wholly[at]).min(lost),
        };
        if away == 0 {
            continue;
        }
        (loss.lost, loss.at_least) = (lost - away, true);
        let is_one = targets.of_tunnels == 0 && !others && !is_tunnel(&flow);
        let to = is_one.then(|| targets.partner(at, &found, &victims, wholly[at])).flatten();
        rewritten.push(Rewritten { from: flow, to, packets: away, what: Change::Address });
    }
    losses.retain(|loss| loss.lost > 0);
    rewritten
}
