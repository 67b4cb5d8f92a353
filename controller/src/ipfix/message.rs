//! IPFIX messages (RFC 7011): templates and data records as bytes.
//!
//! Templates are fixed, fields have fixed lengths, all numbers are big-endian. No I/O.

use std::net::IpAddr;

use calumma_sketchint_analysis::Delays;

use crate::report::Flow;

/// Bytes of a message's header.
const HEADER: usize = 16;

/// Bytes of a set's header.
const SET_HEADER: usize = 4;

/// Set that holds templates.
const TEMPLATE_SET: u16 = 2;

/// Set that holds templates of options.
const OPTIONS_SET: u16 = 3;

/// Number of the protocol's version.
const VERSION: u16 = 10;

/// Longest message: what fits into an Ethernet frame of 1,500 bytes, a tunnel or two included.
pub const MAX_MESSAGE: usize = 1400;

/// `forwardingStatus` of packets that were dropped, the reason unknown.
pub const DROPPED: u8 = 0b1000_0000;

/// `flowSelectorAlgorithm` of selection by what is already in a table (RFC 7014): a flow's hash and
/// the grades of the flows that the table holds decide together.
pub const FLOW_STATE_DEPENDENT: u16 = 9;

/// An information element: its number at IANA and its bytes here.
type Element = (u16, u16);

const FLOW_START_MS: Element = (152, 8);
const FLOW_END_MS: Element = (153, 8);
const SOURCE_IPV4: Element = (8, 4);
const DESTINATION_IPV4: Element = (12, 4);
const SOURCE_IPV6: Element = (27, 16);
const DESTINATION_IPV6: Element = (28, 16);
const SOURCE_PORT: Element = (7, 2);
const DESTINATION_PORT: Element = (11, 2);
const PROTOCOL: Element = (4, 1);
const FORWARDING_STATUS: Element = (89, 1);
const OCTETS: Element = (1, 8);
const PACKETS: Element = (2, 8);
const DROPPED_PACKETS: Element = (133, 8);
const MINIMUM_TTL: Element = (52, 1);
const MAXIMUM_TTL: Element = (53, 1);
const OBSERVATION_POINT: Element = (138, 8);
const INTERVAL_START_MS: Element = (359, 8);
const INTERVAL_END_MS: Element = (360, 8);
const SELECTOR_ALGORITHM: Element = (390, 2);
const SELECTED_OCTETS: Element = (391, 8);
const SELECTED_PACKETS: Element = (392, 8);
const SELECTED_FLOWS: Element = (393, 8);

/// `pathDelayMeanDeltaMicroseconds` (RFC 9951).
const DELAY_MEAN_US: Element = (530, 4);
/// `pathDelayMinDeltaMicroseconds`.
const DELAY_MIN_US: Element = (531, 4);
/// `pathDelayMaxDeltaMicroseconds`.
const DELAY_MAX_US: Element = (532, 4);
/// `pathDelaySumDeltaMicroseconds`.
const DELAY_SUM_US: Element = (533, 8);

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// A flow that lost packets between its ingress and its egress edge.
    Victim,
    /// A heavy hitter at an edge.
    HeavyHitter,
    /// A victim flow with IPv6 addresses.
    Victim6,
    /// A heavy hitter with IPv6 addresses.
    HeavyHitter6,
    /// A flow that was counted exactly in a window.
    Counted,
    /// The same with IPv6 addresses.
    Counted6,
    /// A flow that was counted exactly, whose times to live are not known.
    CountedOnly,
    /// The same with IPv6 addresses.
    CountedOnly6,
    /// Which flows a node selected in a window, as options.
    Selection,
    /// How long all switches together had the packets of a flow: mean and sum.
    Delay,
    /// The same with IPv6 addresses.
    Delay6,
    /// The same with the least and the longest.
    DelayRange,
    /// The same with IPv6 addresses.
    DelayRange6,
    /// How long one switch had the packets of a flow: mean, sum and the longest.
    HopDelay,
    /// The same with IPv6 addresses.
    HopDelay6,
    /// The same with the least.
    HopDelayRange,
    /// The same with IPv6 addresses.
    HopDelayRange6,
}

impl Template {
    /// Kinds of records of epochs.
    pub const OF_EPOCHS: [Self; 4] =
        [Self::Victim, Self::HeavyHitter, Self::Victim6, Self::HeavyHitter6];

    /// Kinds of records of the flows of windows, without the options.
    pub const OF_WINDOWS: [Self; 4] =
        [Self::Counted, Self::Counted6, Self::CountedOnly, Self::CountedOnly6];

    /// Kinds of records of the delays of flows.
    pub const OF_DELAYS: [Self; 8] = [
        Self::Delay,
        Self::Delay6,
        Self::DelayRange,
        Self::DelayRange6,
        Self::HopDelay,
        Self::HopDelay6,
        Self::HopDelayRange,
        Self::HopDelayRange6,
    ];

    /// Its number, which is that of the sets of its records.
    pub fn id(self) -> u16 {
        match self {
            Self::Victim => 256,
            Self::HeavyHitter => 257,
            Self::Victim6 => 258,
            Self::HeavyHitter6 => 259,
            Self::Counted => 260,
            Self::Counted6 => 261,
            Self::CountedOnly => 262,
            Self::CountedOnly6 => 263,
            Self::Selection => 264,
            Self::Delay => 265,
            Self::Delay6 => 266,
            Self::DelayRange => 267,
            Self::DelayRange6 => 268,
            Self::HopDelay => 269,
            Self::HopDelay6 => 270,
            Self::HopDelayRange => 271,
            Self::HopDelayRange6 => 272,
        }
    }

    /// What of its elements comes first.
    fn first(self) -> &'static [Element] {
        match self {
            // The scope.
            Self::Selection => &[OBSERVATION_POINT],
            Self::Victim
            | Self::HeavyHitter
            | Self::Counted
            | Self::CountedOnly
            | Self::Delay
            | Self::DelayRange
            | Self::HopDelay
            | Self::HopDelayRange => &[FLOW_START_MS, FLOW_END_MS, SOURCE_IPV4, DESTINATION_IPV4],
            Self::Victim6
            | Self::HeavyHitter6
            | Self::Counted6
            | Self::CountedOnly6
            | Self::Delay6
            | Self::DelayRange6
            | Self::HopDelay6
            | Self::HopDelayRange6 => &[FLOW_START_MS, FLOW_END_MS, SOURCE_IPV6, DESTINATION_IPV6],
        }
    }

    /// And what follows, behind the ports and the protocol where it has these.
    fn rest(self) -> &'static [Element] {
        match self {
            Self::Victim | Self::Victim6 => &[PACKETS, DROPPED_PACKETS, FORWARDING_STATUS],
            Self::HeavyHitter | Self::HeavyHitter6 => &[PACKETS, OBSERVATION_POINT],
            Self::Counted | Self::Counted6 => {
                &[PACKETS, OBSERVATION_POINT, OCTETS, MINIMUM_TTL, MAXIMUM_TTL]
            }
            Self::CountedOnly | Self::CountedOnly6 => &[PACKETS, OBSERVATION_POINT, OCTETS],
            Self::Selection => &[
                INTERVAL_START_MS,
                INTERVAL_END_MS,
                SELECTOR_ALGORITHM,
                SELECTED_OCTETS,
                SELECTED_PACKETS,
                SELECTED_FLOWS,
            ],
            Self::Delay | Self::Delay6 => &[PACKETS, DELAY_SUM_US, DELAY_MEAN_US],
            Self::DelayRange | Self::DelayRange6 => {
                &[PACKETS, DELAY_SUM_US, DELAY_MEAN_US, DELAY_MAX_US, DELAY_MIN_US]
            }
            Self::HopDelay | Self::HopDelay6 => {
                &[PACKETS, OBSERVATION_POINT, DELAY_SUM_US, DELAY_MEAN_US, DELAY_MAX_US]
            }
            Self::HopDelayRange | Self::HopDelayRange6 => &[
                PACKETS,
                OBSERVATION_POINT,
                DELAY_SUM_US,
                DELAY_MEAN_US,
                DELAY_MAX_US,
                DELAY_MIN_US,
            ],
        }
    }

    fn elements(self) -> impl Iterator<Item = Element> {
        const OF_FLOW: &[Element] = &[SOURCE_PORT, DESTINATION_PORT, PROTOCOL];
        let of_flow = if self == Self::Selection { &[] } else { OF_FLOW };
        [self.first(), of_flow, self.rest()].into_iter().flatten().copied()
    }

    /// Bytes of one of its records.
    pub fn record_bytes(self) -> usize {
        self.elements().map(|(_, bytes)| usize::from(bytes)).sum()
    }
}

/// What a data record is made of.
pub trait Data {
    /// The template that describes it.
    fn template(&self) -> Template;

    /// Appends its bytes: as many as the template says.
    fn put(&self, out: &mut Vec<u8>);
}

/// A data record of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Start of the epoch, or window, in milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// Its end.
    pub end_ms: u64,
    /// The flow.
    pub flow: Flow,
    /// What the record is about.
    pub kind: Kind,
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It lost packets.
    Victim {
        /// How many.
        lost: u64,
    },
    /// It is large.
    HeavyHitter {
        /// Packets.
        size: u64,
        /// Where: the edge's place among the deployment's nodes, from 1.
        edge: u64,
    },
    /// It was counted exactly.
    Counted {
        /// Packets.
        packets: u64,
        /// Their bytes, as IP counts them.
        bytes: u64,
        /// Where: the node's place among the deployment's nodes, from 1.
        node: u64,
        /// The smallest and the largest time to live, where these are known.
        ttls: Option<[u8; 2]>,
    },
    /// How long all switches together had each of its packets.
    Delay(Delays),
    /// How long one switch had each of them.
    HopDelay {
        /// Where: the node's place among the deployment's nodes, from 1.
        node: u64,
        /// How long.
        delays: Delays,
        /// The longest, which is always known, in microseconds.
        max_us: u32,
    },
}

impl Record {
    fn is_ipv4(&self) -> bool {
        self.flow.src.is_ipv4() && self.flow.dst.is_ipv4()
    }
}

impl Data for Record {
    fn template(&self) -> Template {
        match (self.kind, self.is_ipv4()) {
            (Kind::Victim { .. }, true) => Template::Victim,
            (Kind::HeavyHitter { .. }, true) => Template::HeavyHitter,
            (Kind::Victim { .. }, false) => Template::Victim6,
            (Kind::HeavyHitter { .. }, false) => Template::HeavyHitter6,
            (Kind::Counted { ttls: Some(_), .. }, true) => Template::Counted,
            (Kind::Counted { ttls: Some(_), .. }, false) => Template::Counted6,
            (Kind::Counted { ttls: None, .. }, true) => Template::CountedOnly,
            (Kind::Counted { ttls: None, .. }, false) => Template::CountedOnly6,
            (Kind::Delay(of), ipv4) => match (of.min_us.zip(of.max_us), ipv4) {
                (None, true) => Template::Delay,
                (None, false) => Template::Delay6,
                (Some(_), true) => Template::DelayRange,
                (Some(_), false) => Template::DelayRange6,
            },
            (Kind::HopDelay { delays, .. }, ipv4) => match (delays.min_us, ipv4) {
                (None, true) => Template::HopDelay,
                (None, false) => Template::HopDelay6,
                (Some(_), true) => Template::HopDelayRange,
                (Some(_), false) => Template::HopDelayRange6,
            },
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let Self { start_ms, end_ms, flow, kind } = *self;
        put_u64s(out, [start_ms, end_ms]);
        for address in [flow.src, flow.dst] {
            match (address, self.is_ipv4()) {
                (IpAddr::V4(address), true) => out.extend_from_slice(&address.octets()),
                (IpAddr::V4(address), false) => {
                    out.extend_from_slice(&address.to_ipv6_mapped().octets());
                }
                (IpAddr::V6(address), _) => out.extend_from_slice(&address.octets()),
            }
        }
        put_u16(out, flow.sport);
        put_u16(out, flow.dport);
        out.push(flow.proto);
        match kind {
            Kind::Victim { lost } => {
                // The packets of this record are those that were dropped.
                put_u64s(out, [lost, lost]);
                out.push(DROPPED);
            }
            Kind::HeavyHitter { size, edge } => put_u64s(out, [size, edge]),
            Kind::Counted { packets, bytes, node, ttls } => {
                put_u64s(out, [packets, node, bytes]);
                out.extend(ttls.into_iter().flatten());
            }
            Kind::Delay(delays) => {
                put_u64s(out, [delays.packets, delays.sum_us]);
                put_u32s(out, [delays.mean_us]);
                if let Some((least, longest)) = delays.min_us.zip(delays.max_us) {
                    put_u32s(out, [longest, least]);
                }
            }
            Kind::HopDelay { node, delays, max_us } => {
                put_u64s(out, [delays.packets, node, delays.sum_us]);
                put_u32s(out, [delays.mean_us, max_us]);
                if let Some(least) = delays.min_us {
                    put_u32s(out, [least]);
                }
            }
        }
    }
}

/// The flows that a node counted exactly in a window: those that its Intermediate Flow Selection
/// Process (RFC 7014) selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Start of the window in milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// Its end.
    pub end_ms: u64,
    /// Where: the node's place among the deployment's nodes, from 1.
    pub node: u64,
    /// How many flows.
    pub flows: u64,
    /// Their packets at the node.
    pub packets: u64,
    /// The bytes of these, as IP counts them.
    pub bytes: u64,
}

impl Data for Selection {
    fn template(&self) -> Template {
        Template::Selection
    }

    fn put(&self, out: &mut Vec<u8>) {
        let Self { start_ms, end_ms, node, flows, packets, bytes } = *self;
        put_u64s(out, [node, start_ms, end_ms]);
        put_u16(out, FLOW_STATE_DEPENDENT);
        put_u64s(out, [bytes, packets, flows]);
    }
}

fn put_u64s<const N: usize>(out: &mut Vec<u8>, values: [u64; N]) {
    values.iter().for_each(|value| out.extend_from_slice(&value.to_be_bytes()));
}

fn put_u32s<const N: usize>(out: &mut Vec<u8>, values: [u32; N]) {
    values.iter().for_each(|value| out.extend_from_slice(&value.to_be_bytes()));
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Writes messages of one observation domain, and counts their records.
#[derive(Clone, Debug)]
pub struct Encoder {
    domain: u32,
    /// Data records of the messages before.
    sequence: u32,
}

impl Encoder {
    /// An encoder for an observation domain.
    pub fn new(domain: u32) -> Self {
        Self { domain, sequence: 0 }
    }

    /// The message that says what records look like, those of windows and of delays too where these
    /// are sent; `time` is in seconds since the Unix epoch.
    pub fn templates(&self, time: u32, windows: bool, delays: bool) -> Vec<u8> {
        let mut message = self.header(time);
        let mut of_data = Template::OF_EPOCHS.to_vec();
        if delays {
            of_data.extend(Template::OF_DELAYS);
        }
        if windows {
            of_data.extend(Template::OF_WINDOWS);
            let set = begin_set(&mut message, OPTIONS_SET);
            put_template(&mut message, Template::Selection);
            end(&mut message, set);
        }
        let set = begin_set(&mut message, TEMPLATE_SET);
        of_data.into_iter().for_each(|template| put_template(&mut message, template));
        end(&mut message, set);
        message
    }

    /// The message that holds as many of `records` as fit, from the first on, and their number. All
    /// of it must have the same template as the first; the first that has not ends the message.
    pub fn records<D: Data>(&mut self, time: u32, records: &[D]) -> (Vec<u8>, usize) {
        let mut message = self.header(time);
        let Some(template) = records.first().map(Data::template) else { return (message, 0) };
        let most = (MAX_MESSAGE - HEADER - SET_HEADER) / template.record_bytes();
        let set = begin_set(&mut message, template.id());
        let alike = records.iter().take(most).take_while(|record| record.template() == template);
        let mut count = 0;
        for record in alike {
            record.put(&mut message);
            count += 1;
        }
        end(&mut message, set);
        self.sequence = self.sequence.wrapping_add(count as u32);
        (message, count)
    }

    /// A header whose length is still open.
    fn header(&self, time: u32) -> Vec<u8> {
        let mut message = Vec::with_capacity(MAX_MESSAGE);
        put_u16(&mut message, VERSION);
        put_u16(&mut message, 0);
        message.extend_from_slice(&time.to_be_bytes());
        message.extend_from_slice(&self.sequence.to_be_bytes());
        message.extend_from_slice(&self.domain.to_be_bytes());
        message
    }
}

/// Appends a template; one of options has its first element for a scope.
fn put_template(message: &mut Vec<u8>, template: Template) {
    put_u16(message, template.id());
    put_u16(message, template.elements().count() as u16);
    if template == Template::Selection {
        put_u16(message, template.first().len() as u16);
    }
    for (number, bytes) in template.elements() {
        put_u16(message, number);
        put_u16(message, bytes);
    }
}

/// Begins a set and gives its place.
fn begin_set(message: &mut Vec<u8>, id: u16) -> usize {
    let set = message.len();
    put_u16(message, id);
    put_u16(message, 0);
    set
}

/// Writes the lengths of the set at `set` and of the message, which both end here.
fn end(message: &mut [u8], set: usize) {
    let length = message.len() as u16;
    message[set + 2..set + 4].copy_from_slice(&(length - set as u16).to_be_bytes());
    message[2..4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn victim(n: u16) -> Record {
        let flow = Flow {
            src: [10, 1, 0, 2].into(),
            dst: [10, 2, 0, 2].into(),
            sport: n,
            dport: 443,
            proto: 6,
        };
        Record { start_ms: 1000, end_ms: 1050, flow, kind: Kind::Victim { lost: 7 } }
    }

    #[test]
    fn templates_are_as_the_rfc_has_them() {
        let message = Encoder::new(9).templates(0x0102_0304, false, false);
        let header = [0, 10, 0, message.len() as u8, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(message[..16], header);
        // One set with all templates, the first of ten elements, of which the first is 152.
        assert_eq!(message[16..28], [0, 2, 0, message.len() as u8 - 16, 1, 0, 0, 10, 0, 152, 0, 8]);
        assert_eq!(message.len(), 16 + 4 + 2 * (4 + 10 * 4) + 2 * (4 + 9 * 4));
    }

    #[test]
    fn ipv6_flows_have_templates_of_their_own() {
        let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let six = Record { flow: Flow { src, dst, ..victim(7).flow }, ..victim(7) };
        let (message, count) = Encoder::new(1).records(5, &[six, six, victim(8)]);
        assert_eq!((count, six.template()), (2, Template::Victim6));
        assert_eq!(message[16..18], 258u16.to_be_bytes());
        assert_eq!(message.len(), 16 + 4 + 2 * (46 + 24));
        assert_eq!(message[36..40], [0x20, 1, 0xD, 0xB8]);
        assert_eq!(message[67..69], [2, 0]);
    }

    #[test]
    fn records_are_packed_to_the_limit_and_counted_by_the_sequence() {
        let mut records: Vec<Record> = (0..60).map(victim).collect();
        records.push(Record { kind: Kind::HeavyHitter { size: 900, edge: 2 }, ..victim(99) });
        let mut encoder = Encoder::new(1);
        let (mut sent, mut sequences) = (0, Vec::new());
        let mut messages = Vec::new();
        while sent < records.len() {
            let (message, count) = encoder.records(5, &records[sent..]);
            assert!(message.len() <= MAX_MESSAGE && count > 0);
            sequences.push(u32::from_be_bytes(message[8..12].try_into().unwrap()));
            sent += count;
            messages.push(message);
        }
        assert_eq!(sequences, [0, 30, 60]);
        assert_eq!(messages[0].len(), 16 + 4 + 30 * 46);
        assert_eq!(messages[0][2..4], (messages[0].len() as u16).to_be_bytes());
        assert_eq!(messages[0][16..18], [1, 0]);
        assert_eq!(messages[2][16..20], [1, 1, 0, 4 + 45]);
        let first = &messages[0][20..66];
        assert_eq!(first[..8], 1000u64.to_be_bytes());
        assert_eq!(first[16..24], [10, 1, 0, 2, 10, 2, 0, 2]);
        assert_eq!(first[24..29], [0, 0, 1, 187, 6]);
        assert_eq!(first[45], DROPPED);
    }
}
