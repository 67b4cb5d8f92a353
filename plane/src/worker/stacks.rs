//! The INT stacks of a burst: which packets are to have one or a hop more when they are
//! transmitted, and which have to lose theirs before they reach a host.

use std::num::NonZeroU16;

use calumma_sketch::{AnyKey, BURST, Key, either};

use super::masks::positions;
use super::{Policy, Worker};
use crate::Carrier;
use crate::arrival::BurstArrival;
use crate::counters::Counters;
use crate::flows::{Flows, Stacks};
use crate::int::around::{Came, Going, complete};
use crate::int::header::{
    HEADERS, Original, Seen, could_be_taken, ip_offset, look, set_marker, tos,
};
use crate::int::means::Means;
use crate::int::plain;
use crate::int::push::{self, NotCarried, Pushed, Standing};
use crate::int::strip::{Goes, read, strip};
use crate::int::{Domains, Hop, Insertion, MARKER};
use crate::measure::Sessions;
use crate::packet::Packet;
use crate::parse::tunnel::{self, Tunnels};
use crate::tag::before::UDP_HEADER;

/// Packets are about to be handed to a transmit queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When, in nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// Bytes that a frame may have behind its Ethernet header, VLAN tags included.
    pub mtu: u16,
}

/// What is to be done to packets of the burst under way when they depart, by position.
#[derive(Debug, Default)]
pub(super) struct PendingStacks {
    /// Whose stacks are this switch's.
    domains: Domains,
    /// Packets that get a stack.
    sources: u32,
    /// Packets that get the switch's own hop, if they have a stack.
    passing: u32,
    /// Whether the packets have waited in the slow path.
    have_waited: bool,
    /// What hosts have sent packets with that enter.
    dscp: [u8; BURST],
    /// By what means the switch knew what it put into packets since an epoch was armed last.
    means: Means,
    /// By what the burst came, where stacks say so.
    came: Option<Came>,
    /// By what those of its packets go that depart next, likewise.
    goes: Option<Going>,
}

/// Packets that have the marker: their positions, and where their IP headers begin.
#[derive(Clone, Debug)]
pub(super) struct Carrying {
    which: u32,
    offsets: [u16; BURST],
}

/// Finds the packets that have to lose their stacks, should they have any.
#[inline]
pub(super) fn carrying<K: Key, P: Packet>(
    policy: &Policy,
    packets: &[P],
    flows: &Flows<K>,
) -> Option<Carrying> {
    if !policy.strip || !policy.carrier.carries_stacks() || !any_marker(packets, flows) {
        return None;
    }
    let mut carrying = Carrying { which: 0, offsets: [0; BURST] };
    for &(at, offset) in flows.places() {
        let at = usize::from(at);
        if tos(&packets[at], offset.into()) & MARKER != 0 {
            carrying.which |= 1 << at;
            carrying.offsets[at] = offset;
        }
    }
    Some(carrying)
}

/// Whether any of the packets has the marker.
#[inline]
fn any_marker<K: Key, P: Packet>(packets: &[P], flows: &Flows<K>) -> bool {
    let bytes =
        flows.places().iter().map(|&(at, offset)| tos(&packets[usize::from(at)], offset.into()));
    bytes.fold(0, |any, byte| any | byte) & MARKER != 0
}

impl PendingStacks {
    /// Whose stacks are this switch's.
    #[inline]
    pub(super) fn domains(&self) -> Domains {
        self.domains
    }

    /// Begins a burst.
    #[inline]
    pub(super) fn begin(&mut self) {
        (self.sources, self.passing, self.have_waited) = (0, 0, false);
    }

    /// Notes that packets pass from fabric to fabric.
    #[inline]
    pub(super) fn pass(&mut self, of: u32) {
        self.passing |= of;
    }

    /// Clears the marker of packets from hosts: whatever they carry is theirs. Where nothing is put
    /// into packets at this switch, only of those that a sink would take for its own. `others` has
    /// a bit for each that is no flow.
    #[inline]
    pub(super) fn enter<K: Key, P: Packet>(
        &mut self,
        policy: &Policy,
        inserts: bool,
        counters: &mut Counters,
        packets: &mut [P],
        (flows, others): (&Flows<K>, u32),
    ) {
        if !policy.carrier.carries_stacks() {
            return;
        }
        if others != 0 {
            clear_others(policy, inserts, counters, packets, others);
        }
        if inserts {
            for &(at, offset) in flows.places() {
                let (at, offset) = (usize::from(at), usize::from(offset));
                let byte = tos(&packets[at], offset);
                self.dscp[at] = byte >> 2;
                if byte & MARKER != 0 {
                    set_marker(&mut packets[at], offset, false);
                    counters.int.dscp_cleared += 1;
                }
            }
        } else if policy.strip && any_marker(packets, flows) {
            clear_forged(counters, packets, flows);
        }
    }

    /// Notes which packets are to get a stack.
    pub(super) fn choose<K: Key, P: Packet>(
        &mut self,
        policy: &Policy,
        counters: &mut Counters,
        packets: &[P],
        flows: &Flows<K>,
    ) {
        if !policy.carrier.carries_stacks() {
            return;
        }
        for number in positions(flows.sources()) {
            let Some(&(at, _)) = flows.places().get(number) else { return };
            let at = usize::from(at);
            let hidden = |packet: &P| {
                policy.tunnels == Tunnels::Inner
                    && tunnel::parse(packet.bytes(), packet.wire_len()).1.is_some()
            };
            if self.have_waited {
                counters.int.go_without(NotCarried::SlowPath);
            } else if packets.get(at).is_some_and(hidden) {
                counters.int.go_without(NotCarried::Tunnel);
            } else {
                self.sources |= 1 << at;
            }
        }
    }

    /// Takes the stacks out of packets that leave the network, and reads them where there is room
    /// for that. Gives those packets that are to be dropped, which are no flows any more.
    #[inline(never)]
    pub(super) fn strip<K: Key, P: Packet>(
        &self,
        (carrying, carrier): (&Carrying, Carrier),
        mut lent: Option<Box<Stacks>>,
        counters: &mut Counters,
        packets: &mut [P],
        flows: &mut Flows<K>,
    ) -> u32 {
        let mut drops = 0;
        // Signed marks are taken out by now, and the whole DSCP was given in their place.
        let given = match carrier {
            Carrier::SignedTos(_) => flows.marked_positions(),
            _ => 0,
        };
        for at in positions(carrying.which) {
            let Some(packet) = packets.get_mut(at) else { break };
            let offset = usize::from(carrying.offsets[at]);
            let goes = if given >> at & 1 == 1 { Goes::ToHostGiven } else { Goes::ToHost };
            let counters = &mut counters.int;
            if plain::strip(packet, self.domains, |header| lent.as_mut()?.add(at, header)) {
                counters.stripped += 1;
                continue;
            }
            match look(packet, offset, self.domains) {
                Seen::Stack(found) if found.header.is_discarded() => {
                    counters.discarded += 1;
                    drops |= 1 << at;
                }
                Seen::Stack(found) => {
                    if let Some(stack) = lent.as_mut().and_then(|it| it.add(at, &found.header)) {
                        read(packet, &found, stack);
                    }
                    if strip(packet, offset, &found, goes) {
                        counters.stripped += 1;
                        // Without a session nobody knows of a signature beside a stack that it is
                        // one. Without the bit of stacks it is.
                        if let (Carrier::SignedTos(tos), Goes::ToHost) = (carrier, goes)
                            && !matches!(found.header.original, Original::Dscp(_))
                        {
                            tos.take(packet.bytes_mut(), offset);
                        }
                    } else {
                        counters.unstripped += 1;
                        drops |= 1 << at;
                    }
                }
                seen @ (Seen::Fragment | Seen::Malformed) => {
                    counters.malformed += u64::from(seen == Seen::Malformed);
                    counters.unstripped += 1;
                    drops |= 1 << at;
                }
                // Where nobody has said yet what is this network's, nothing is foreign.
                Seen::Foreign => counters.foreign += u64::from(self.domains != Domains::ANY),
            }
        }
        if drops != 0 {
            flows.retain(!flows.at_positions(drops));
        }
        flows.set_stacks(lent);
        drops
    }

    /// Finds packets for hosts with a stack in them and headers that can't be measured: nobody can
    /// take it out. `of` has a bit for each that is looked at. Gives those that are to be dropped.
    #[cold]
    pub(super) fn unreadable<P: Packet>(
        &self,
        policy: &Policy,
        counters: &mut Counters,
        packets: &[P],
        of: u32,
    ) -> u32 {
        let mut drops = 0;
        if !policy.strip || !policy.carrier.carries_stacks() {
            return drops;
        }
        for (at, packet, offset) in marked(policy, packets, of) {
            if look(packet, offset, self.domains) != Seen::Foreign {
                counters.int.malformed += 1;
                counters.int.unstripped += 1;
                drops |= 1 << at;
            }
        }
        drops
    }

    /// Puts stacks and hops into packets that are about to depart: the i-th is at the i-th of these
    /// positions.
    #[inline(never)]
    fn push<P: Packet>(
        &self,
        (insertion, arrival): (&Insertion, Option<BurstArrival>),
        carrier: Carrier,
        counters: &mut Counters,
        packets: &mut [P],
        (of, departure): (u32, Departure),
    ) -> Means {
        let counters = &mut counters.int;
        let mtu = usize::from(departure.mtu);
        let arrival = arrival.filter(|_| !self.have_waited);
        let (mut means, mut are_polled) = (Means::default(), false);
        let says_around = self.came.is_some() || self.goes.is_some();
        for (packet, at) in packets.iter_mut().zip(positions(of)) {
            let is_source = self.sources >> at & 1 == 1;
            if !is_source && self.passing >> at & 1 == 0 {
                continue;
            }
            let arrived = arrival.map(|arrival| match arrival.stamped(packet.stamp()) {
                Some(by_device) => {
                    means.note(by_device, true);
                    by_device
                }
                None => {
                    are_polled = true;
                    arrival.polled()
                }
            });
            let hop = Hop::met(insertion.node, arrived, departure.at_ns);
            if is_source {
                if plain::source(packet, (insertion, &hop), self.dscp[at], mtu) {
                    counters.inserted += 1;
                    counters.count(Pushed::Hop);
                    continue;
                }
            } else if plain::transit(packet, self.domains, &hop, mtu) {
                counters.count(Pushed::Hop);
                continue;
            }
            let Some(offset) = ip_offset(packet.bytes(), carrier) else { continue };
            let hop = match says_around {
                true => complete(hop, at, self.came.as_ref(), self.goes.as_ref()),
                false => hop,
            };
            if is_source {
                match push::source(packet, offset, (insertion, &hop), self.dscp[at], mtu) {
                    Ok(pushed) => {
                        counters.inserted += 1;
                        counters.count(pushed);
                    }
                    Err(why) => counters.go_without(why),
                }
            } else if tos(packet, offset) & MARKER != 0 {
                match look(packet, offset, self.domains) {
                    Seen::Stack(found) => {
                        counters.count(push::transit(packet, &found, &hop, mtu));
                    }
                    Seen::Malformed => counters.malformed += 1,
                    Seen::Fragment | Seen::Foreign => counters.foreign += 1,
                }
            }
        }
        if let Some(arrival) = arrival.filter(|_| are_polled) {
            means.note(arrival.polled(), false);
        }
        if let Some(came) = &self.came {
            means.add(came.means(insertion.instructions));
        }
        means
    }
}

/// Clears the marker of packets from hosts that a sink would take for packets with a stack.
#[cold]
fn clear_forged<K: Key, P: Packet>(counters: &mut Counters, packets: &mut [P], flows: &Flows<K>) {
    for &(at, offset) in flows.places() {
        let (packet, offset) = (&mut packets[usize::from(at)], usize::from(offset));
        if tos(packet, offset) & MARKER != 0 && could_be_taken(packet, offset) {
            set_marker(packet, offset, false);
            counters.int.dscp_cleared += 1;
        }
    }
}

/// The same for packets that are no flows.
#[cold]
fn clear_others<P: Packet>(
    policy: &Policy,
    inserts: bool,
    counters: &mut Counters,
    packets: &mut [P],
    of: u32,
) {
    let mut clear = 0;
    for (at, packet, offset) in marked(policy, packets, of) {
        let is_forged = || policy.strip && could_be_taken(packet, offset);
        clear |= u32::from(inserts || is_forged()) << at;
    }
    for at in positions(clear) {
        let Some(offset) = ip_offset(packets[at].bytes(), policy.carrier) else { continue };
        set_marker(&mut packets[at], offset, false);
        counters.int.dscp_cleared += 1;
    }
}

/// Those of the packets with the marker, each with its position and where its IP header begins.
fn marked<'a, P: Packet>(
    policy: &Policy,
    packets: &'a [P],
    of: u32,
) -> impl Iterator<Item = (usize, &'a P, usize)> + use<'a, P> {
    let carrier = policy.carrier;
    let found = move |at: usize| {
        let packet = packets.get(at)?;
        let offset = ip_offset(packet.bytes(), carrier)?;
        (tos(packet, offset) & MARKER != 0).then_some((at, packet, offset))
    };
    positions(of).filter_map(found)
}

/// Bytes by which packets from hosts get longer at most, by marks and whole stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostAdded {
    /// Bytes of a mark and a stack.
    pub by_stack: u16,
    /// The UDP port that marks packets with a stack, some of which get a UDP header as well.
    pub udp_port: Option<NonZeroU16>,
}

impl MostAdded {
    /// The most to any packet.
    pub fn to_any(self) -> u16 {
        self.by_stack + if self.udp_port.is_some() { UDP_HEADER as u16 } else { 0 }
    }

    /// To a packet whose IP header begins at `ip_offset`, and which is or was so long on the wire;
    /// `None` where there is no place for a stack in it.
    pub fn to(self, bytes: &[u8], ip_offset: usize, wire_len: usize) -> Option<u16> {
        let standing = Standing::of(bytes, (ip_offset, wire_len), self.udp_port, 0).ok()?;
        Some(if standing.has_own_header() { self.to_any() } else { self.by_stack })
    }
}

/// Positions of packets whose INT stacks were to be taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenOut {
    /// Packets that had a stack, and have it no more.
    pub taken: u32,
    /// Packets with a stack of this network's whose lengths or headers are damaged.
    pub malformed: u32,
    /// Packets with a stack that stays where it is: in a first fragment, or for want of memory.
    pub fixed: u32,
}

impl Worker {
    /// Notes whose INT stacks are this switch's, and that an epoch may have been armed, in whose
    /// records nothing stands of what packets have been given.
    #[cold]
    pub(super) fn after_events(&mut self) {
        let PendingStacks { domains, means, came, goes, .. } = &mut self.stacks;
        (*means, *came, *goes) = (Means::default(), None, None);
        if let Some(active) = self.measurement.active() {
            either!(active, active => active.learn_domains(domains));
        }
    }

    /// What stacks say of the switch's ports and queues, as bits of [`Instructions`]: these are to
    /// be given by [`came`](Self::came) and [`goes`](Self::goes).
    ///
    /// [`Instructions`]: crate::int::Instructions
    #[inline]
    pub fn asks_around(&self) -> u16 {
        self.measurement.asks_around()
    }

    /// Says by what the bursts that follow came, until this is called again.
    #[inline]
    pub fn came(&mut self, came: Option<Came>) {
        self.stacks.came = came;
    }

    /// Changes what was said by what the burst came, if anything was.
    pub fn came_mut(&mut self) -> Option<&mut Came> {
        self.stacks.came.as_mut()
    }

    /// Says by what packets go that [depart](Self::depart) from here on.
    #[inline]
    pub fn goes(&mut self, goes: Going) {
        self.stacks.goes = Some(goes);
    }

    /// Notes that the packets of the burst that has [begun](Self::begin) have waited in the slow
    /// path: none gets an INT stack, and nobody knows for how long they were in the switch.
    pub fn have_waited(&mut self) {
        self.stacks.have_waited = true;
    }

    /// Bytes by which packets from hosts get longer at most, by marks and whole stacks; `None`
    /// where no stacks are put in.
    pub fn most_added(&mut self) -> Option<MostAdded> {
        let carrier = self.policy.carrier;
        let active = self.measurement.active().filter(|_| carrier.carries_stacks())?;
        let insertion = either!(&*active, active => active.insertion)?;
        let mark = if let Carrier::Shim(shim) = carrier { shim.longest() } else { 0 };
        let stack = HEADERS + 4 * insertion.instructions.words() * usize::from(insertion.hops);
        let by_stack = u16::try_from(mark + stack).ok()?;
        Some(MostAdded { by_stack, udp_port: insertion.udp_port })
    }

    /// Whether the packet at this position of the burst was chosen to get a stack.
    pub fn gets_stack(&self, at: usize) -> bool {
        u64::from(self.stacks.sources) >> at & 1 == 1
    }

    /// Whether INT stacks are taken out of packets that leave the network.
    #[inline]
    pub fn strips(&self) -> bool {
        self.policy.strip
    }

    /// Whether [`depart`](Self::depart) is to be called before packets are transmitted.
    #[inline]
    pub fn asks_departures(&mut self) -> bool {
        let asks = |any: &mut AnyKey<Sessions>| either!(any, active => active.asks_departures);
        self.measurement.active().is_some_and(asks)
    }

    /// Packets of the burst under way are about to be handed to a transmit queue: puts INT stacks
    /// and hops into those that are to have them. Once for each port, before it is said what was
    /// [sent](Self::sent). `of` has a bit for the position of each in the burst, in order.
    pub fn depart<P: Packet>(&mut self, packets: &mut [P], of: u32, departure: Departure) {
        let Self { policy, measurement, stacks, counters, .. } = self;
        let Some(active) = measurement.active() else { return };
        let queued = stacks.came.as_ref().and_then(Came::queued);
        let (insertion, arrival) = either!(active, active => {
            active.depart(departure.at_ns, queued);
            (active.insertion, active.arrival)
        });
        if let Some(insertion) = insertion
            && (stacks.sources | stacks.passing) & of != 0
            && policy.carrier.carries_stacks()
        {
            let carrier = policy.carrier;
            let of = (of, departure);
            let means = stacks.push((&insertion, arrival), carrier, counters, packets, of);
            if !stacks.means.covers(means) {
                stacks.means.add(means);
                either!(active, active => active.note_means(stacks.means));
            }
        }
    }

    /// Bytes that a packet from the fabric loses where it [leaves](super::Path::Leave) the network:
    /// those of an INT stack that can be taken out.
    #[cold]
    pub fn lost_by_leaving<P: Packet>(&self, packet: &P) -> u16 {
        let Self { policy, stacks, .. } = self;
        if !policy.strip || !policy.carrier.carries_stacks() {
            return 0;
        }
        let offset = ip_offset(packet.bytes(), policy.carrier);
        match offset.filter(|&offset| tos(packet, offset) & MARKER != 0) {
            Some(offset) => match look(packet, offset, stacks.domains) {
                Seen::Stack(found) => found.added() as u16,
                _ => 0,
            },
            None => 0,
        }
    }

    /// Takes the INT stacks out of packets from the fabric that do not go on as others do, and
    /// keeps their marks. Gives the positions of those that had one; `of` has a bit for each that
    /// is looked at.
    #[cold]
    pub fn take_out<P: Packet>(&mut self, packets: &mut [P], of: u32) -> TakenOut {
        let Self { policy, stacks, counters, .. } = self;
        let mut of_packets = TakenOut::default();
        if !policy.carrier.carries_stacks() {
            return of_packets;
        }
        for at in positions(of) {
            let Some(packet) = packets.get_mut(at) else { break };
            let Some(offset) = ip_offset(packet.bytes(), policy.carrier) else { continue };
            if tos(packet, offset) & MARKER == 0 {
                continue;
            }
            match look(packet, offset, stacks.domains) {
                Seen::Stack(found) if strip(packet, offset, &found, Goes::On) => {
                    counters.int.taken_out += 1;
                    of_packets.taken |= 1 << at;
                }
                Seen::Malformed => of_packets.malformed |= 1 << at,
                Seen::Stack(_) | Seen::Fragment => of_packets.fixed |= 1 << at,
                Seen::Foreign => {}
            }
        }
        of_packets
    }

    /// Counts packets whose stack [can't be taken out](Self::take_out), and that are dropped so
    /// that no host gets it. Gives their positions.
    #[cold]
    pub fn drop_unstripped(&mut self, of: &TakenOut) -> u32 {
        let drops = of.malformed | of.fixed;
        self.counters.int.malformed += u64::from(of.malformed.count_ones());
        self.counters.int.unstripped += u64::from(drops.count_ones());
        drops
    }
}
