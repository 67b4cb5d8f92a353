//! Collection through the data plane: packets that the switch's CPU sends into the program, which
//! go round inside the switch, read one element of a register on each pass, and come back full.
//!
//! A [`Gathering`] knows which elements of which source are there, sends requests for the missing
//! ones, and takes reports in any order, lost and doubled ones included. Reading does not clear;
//! once everything is there, [`Clearing`] does, and knows when that is done and no packet that
//! clears is under way any more.
//!
//! Each time that [`Gathering::requests`] or [`Clearing::requests`] is called is a *round*: the
//! packets of a round share a request number, the next round has the next number.

use std::collections::BTreeMap;

/// Ethernet type of collection packets: IEEE 802, for local use.
pub const ETHER_TYPE: u16 = 0x88B5;

const ETHERNET: usize = 14;
const HEADER: usize = 14;

/// Bytes in front of the records; the mirror session of the copy that goes on must keep as many.
pub const FRONT: usize = ETHERNET + HEADER;

/// Longest collection packet, so that a report fits an Ethernet frame.
const MTU: usize = 1514;

/// Elements that one packet goes round for: long runs are cut, so that several packets share the
/// work and a lost one costs little.
const RUN: u32 = 4096;

/// What is collected: registers that are read element by element, one element of each on a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its number in the program.
    pub number: u8,
    /// Its registers, in the order of an element's words. Each holds two groups, that of timestamp
    /// bit 1 behind that of bit 0.
    pub registers: Vec<String>,
    /// Elements of one group.
    pub elements: u32,
    /// How packets name a group.
    pub groups: Groups,
    /// What a packet takes along on each pass.
    pub record: Record,
}

/// How collection packets name the groups of a source. They number elements with 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// Elements of the second group go on where those of the first end.
    ByElement,
    /// The second group is a source of its own, of the number behind: either may have 2^16
    /// elements.
    ByNumber,
}

impl Source {
    /// The number and first element by which packets name the group of timestamp bit `bit`.
    fn group(&self, bit: u32) -> (u8, u32) {
        match self.groups {
            Groups::ByElement => (self.number, bit * self.elements),
            Groups::ByNumber => (self.number + bit as u8, 0),
        }
    }
}

/// What a collection packet takes along of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// One word of 16 bits.
    Counter,
    /// So many words of 32 bits.
    Words(usize),
    /// So many pairs of words of 32 bits, of which it takes the first ones on one way through the
    /// registers and the second ones on another.
    Pairs(usize),
}

impl Record {
    fn bytes(self) -> usize {
        match self {
            Record::Counter => 2,
            Record::Words(words) | Record::Pairs(words) => 4 * words,
        }
    }

    /// The accesses that together read an element.
    fn reads(self) -> &'static [Access] {
        match self {
            Record::Counter | Record::Words(_) => &[Access::Read],
            Record::Pairs(_) => &[Access::Read, Access::ReadSecond],
        }
    }
}

/// What a collection packet does with each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Access {
    Read = 2,
    /// The second words of registers of pairs.
    ReadSecond = 3,
    Clear = 4,
}

/// A report that can't be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// Not a collection packet.
    #[error("no collection packet: Ethernet type {0:#06x}")]
    EtherType(u16),
    /// Shorter than its headers or records say.
    #[error("a collection packet of {0} bytes is too short for what it says it holds")]
    Truncated(usize),
    /// An access that no request has.
    #[error("a collection packet with access {0}")]
    Unknown(u8),
}

/// Whose report a collection packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A packet of another gathering or clearing.
    Other,
    /// A packet of an earlier round.
    Earlier,
    /// A packet of the last round.
    Last,
}

/// The request numbers of a gathering or clearing.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    first: u32,
    count: u32,
}

impl Rounds {
    fn from(first: u32) -> Rounds {
        Rounds { first, count: 0 }
    }

    /// The number of the next round.
    fn next(&mut self) -> u32 {
        self.count += 1;
        self.first.wrapping_add(self.count - 1)
    }

    fn sender(self, request: u32) -> Sender {
        match request.wrapping_sub(self.first) {
            round if round >= self.count => Sender::Other,
            round if round + 1 == self.count => Sender::Last,
            _ => Sender::Earlier,
        }
    }
}

/// The group of one epoch as it is gathered from one source.
#[derive(Debug)]
pub struct Gathering {
    source: u8,
    record: Record,
    /// First element of the group in the register.
    first: u32,
    elements: u32,
    rounds: Rounds,
    /// Words of each element, by access.
    parts: BTreeMap<Access, Vec<Option<Vec<u32>>>>,
}

impl Gathering {
    /// Gathers the group of timestamp bit `bit`; `request` is the number of its first round.
    pub fn new(source: &Source, bit: u32, request: u32) -> Gathering {
        let Source { elements, record, .. } = *source;
        let (number, first) = source.group(bit);
        let reads = record.reads().iter();
        Gathering {
            source: number,
            record,
            first,
            elements,
            rounds: Rounds::from(request),
            parts: reads.map(|&read| (read, vec![None; elements as usize])).collect(),
        }
    }

    /// Packets that ask for everything that is missing. Each goes round on its own, so several keep
    /// the switch busy at once.
    pub fn requests(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let (source, request) = (self.source, self.rounds.next());
        for (&access, parts) in &self.parts {
            for (first, length) in runs(parts) {
                let first = self.first + first;
                out.push(packet(source, self.record, access, first, length, request));
            }
        }
        out
    }

    /// Takes the records of a report.
    ///
    /// # Errors
    /// When the packet is no report of a collection.
    pub fn take(&mut self, packet: &[u8]) -> Result<Sender, ReportError> {
        let report = Report::parse(packet)?;
        let Report { source, access, next, request, .. } = report;
        let sender = self.rounds.sender(request);
        let Some(parts) = self.parts.get_mut(&access) else { return Ok(Sender::Other) };
        if source != self.source || sender == Sender::Other {
            return Ok(Sender::Other);
        }
        let size = self.record.bytes();
        let records = packet.get(FRONT..FRONT + report.records * size);
        let records = records.ok_or(ReportError::Truncated(packet.len()))?;
        // The newest record is in front: that of the element before `next`.
        for (back, record) in (1..).zip(records.chunks_exact(size)) {
            let element = next.wrapping_sub(back).wrapping_sub(self.first) & 0xFFFF;
            if let Some(part) = parts.get_mut(element as usize) {
                *part = Some(words(record));
            }
        }
        Ok(sender)
    }

    /// True once every element is there.
    pub fn is_complete(&self) -> bool {
        self.parts.values().flatten().all(Option::is_some)
    }

    /// The words of all elements in order: counters, or buckets in wire order. `None` until
    /// complete.
    pub fn words(&self) -> Option<Vec<u32>> {
        let mut out = Vec::new();
        for element in 0..self.elements as usize {
            let mut parts = self.parts.values().map(|parts| parts[element].as_deref());
            let first = parts.next()??;
            match parts.next() {
                None => out.extend_from_slice(first),
                // First and second words of each pair in turn.
                Some(second) => {
                    for pair in first.iter().zip(second?) {
                        out.extend([pair.0, pair.1]);
                    }
                }
            }
        }
        Some(out)
    }
}

/// The group of one epoch as it is cleared in one source.
#[derive(Debug)]
pub struct Clearing {
    source: u8,
    record: Record,
    rounds: Rounds,
    /// First element and length of the runs that may not be cleared, or that a packet may still
    /// clear.
    left: Vec<(u32, u32)>,
}

impl Clearing {
    /// Clears the group of timestamp bit `bit`; `request` is the number of its first round.
    pub fn new(source: &Source, bit: u32, request: u32) -> Clearing {
        let Source { elements, record, .. } = *source;
        let (number, first) = source.group(bit);
        let left = cut(0, elements).map(|(at, length)| (first + at, length)).collect();
        Clearing { source: number, record, rounds: Rounds::from(request), left }
    }

    /// Packets that clear what is not known to be cleared for good.
    pub fn requests(&mut self) -> Vec<Vec<u8>> {
        let Clearing { source, record, .. } = *self;
        let request = self.rounds.next();
        let packet =
            |&(first, length)| packet(source, record, Access::Clear, first, length, request);
        self.left.iter().map(packet).collect()
    }

    /// Takes a report.
    ///
    /// Packets for the same run end in the order in which they were sent: each goes the same way
    /// the same number of times, and queues keep the order. So a run is done when the packet of
    /// the last round reports it. That of an earlier round says nothing of those behind it, which
    /// may still clear when the group is in use again.
    ///
    /// # Errors
    /// When the packet is no report of a collection.
    pub fn take(&mut self, packet: &[u8]) -> Result<Sender, ReportError> {
        let Report { source, access, next, left, request, .. } = Report::parse(packet)?;
        if (source, access) != (self.source, Access::Clear) {
            return Ok(Sender::Other);
        }
        let sender = self.rounds.sender(request);
        // Registers have up to 2^16 elements: behind the last one comes 0.
        let ends = |&(first, length): &(u32, u32)| (first + length) & 0xFFFF == next;
        if left == 0 && sender == Sender::Last {
            self.left.retain(|run| !ends(run));
        }
        Ok(sender)
    }

    /// True once all is cleared, and no packet clears any more.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty()
    }
}

/// What a report says in its header.
struct Report {
    source: u8,
    access: Access,
    next: u32,
    left: u16,
    records: usize,
    request: u32,
}

impl Report {
    fn parse(packet: &[u8]) -> Result<Report, ReportError> {
        let truncated = ReportError::Truncated(packet.len());
        let front: &[u8; FRONT] = packet.first_chunk().ok_or(truncated)?;
        let word = |at: usize| u16::from_be_bytes([front[at], front[at + 1]]);
        let ether_type = word(12);
        if ether_type != ETHER_TYPE {
            return Err(ReportError::EtherType(ether_type));
        }
        let source = front[14];
        let access = match front[15] & 7 {
            2 => Access::Read,
            3 => Access::ReadSecond,
            4 => Access::Clear,
            other => return Err(ReportError::Unknown(other)),
        };
        let (room, limit) = (word(20), word(22));
        Ok(Report {
            source,
            access,
            next: u32::from(word(16)),
            left: word(18),
            records: usize::from(limit.checked_sub(room).ok_or(truncated)?),
            request: u32::from_be_bytes([front[24], front[25], front[26], front[27]]),
        })
    }
}

/// A packet that accesses `length` elements from `first` on.
fn packet(
    source: u8,
    record: Record,
    access: Access,
    first: u32,
    length: u32,
    request: u32,
) -> Vec<u8> {
    let limit = ((MTU - FRONT) / record.bytes()) as u16;
    let mut out = vec![0; 12];
    out.extend_from_slice(&ETHER_TYPE.to_be_bytes());
    out.extend_from_slice(&[source, access as u8]);
    // Group and element together fill the 16 bits of an index.
    out.extend_from_slice(&(first as u16).to_be_bytes());
    out.extend_from_slice(&(length as u16).to_be_bytes());
    out.extend_from_slice(&limit.to_be_bytes());
    out.extend_from_slice(&limit.to_be_bytes());
    out.extend_from_slice(&request.to_be_bytes());
    out
}

/// A run in pieces of at most [`RUN`]: first and length.
fn cut(first: u32, length: u32) -> impl Iterator<Item = (u32, u32)> {
    let starts = (0..length).step_by(RUN as usize);
    starts.map(move |at| (first + at, RUN.min(length - at)))
}

/// Runs of missing elements, none longer than [`RUN`]: first and length.
fn runs(parts: &[Option<Vec<u32>>]) -> Vec<(u32, u32)> {
    let mut out: Vec<(u32, u32)> = Vec::new();
    for (at, _) in (0..).zip(parts).filter(|(_, part)| part.is_none()) {
        match out.last_mut() {
            Some((first, length)) if *first + *length == at => *length += 1,
            _ => out.push((at, 1)),
        }
    }
    out.into_iter().flat_map(|(first, length)| cut(first, length)).collect()
}

/// A record's words: one of 16 bits, or several of 32.
fn words(record: &[u8]) -> Vec<u32> {
    match *record {
        [high, low] => vec![u32::from(u16::from_be_bytes([high, low]))],
        _ => record.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source(number: u8, elements: u32, record: Record) -> Source {
        Source { number, registers: Vec::new(), elements, groups: Groups::ByElement, record }
    }

    #[test]
    fn missing_elements_are_asked_for_in_runs() {
        let mut gathering = Gathering::new(&source(3, 4096, Record::Words(5)), 1, 7);
        assert_eq!(gathering.requests().len(), 1);
        // A report of the elements 4096 to 4098 of the register, the newest first.
        let mut report = vec![0; 12];
        report.extend_from_slice(&[0x88, 0xB5, 3, 2, 0x10, 0x03, 0, 0, 0, 71, 0, 74, 0, 0, 0, 7]);
        for element in [12_u32, 11, 10] {
            (0..5).for_each(|_| report.extend_from_slice(&element.to_be_bytes()));
        }
        assert_eq!(gathering.take(&report), Ok(Sender::Last));
        let [request] = &gathering.requests()[..] else { panic!("one run is missing") };
        assert_eq!(request[16..20], [0x10, 0x03, 0x0F, 0xFD]);
        assert_eq!(request[27], 8, "the second round");
        assert_eq!(gathering.words(), None);
        assert_eq!(gathering.take(&report), Ok(Sender::Earlier));
        report[27] = 9;
        assert_eq!(gathering.take(&report), Ok(Sender::Other), "another request's report");
    }

    #[test]
    fn a_group_is_cleared_once_the_end_of_each_run_is_reported() {
        let mut clearing = Clearing::new(&source(0, 32768, Record::Counter), 1, 9);
        let requests = clearing.requests();
        assert_eq!(requests.len(), 8, "32768 counters in runs of {RUN}");
        // On its way back, a request names the element behind its last and has none left.
        for (at, mut report) in requests.into_iter().enumerate() {
            assert!(!clearing.is_complete());
            let next = ((8 + at as u32 + 1) * RUN) as u16;
            report[16..18].copy_from_slice(&next.to_be_bytes());
            assert_eq!(clearing.take(&report), Ok(Sender::Last), "still under way");
            assert_eq!(clearing.left.len(), 8 - at);
            report[18..20].fill(0);
            assert_eq!(clearing.take(&report), Ok(Sender::Last));
        }
        assert!(clearing.is_complete());
    }

    #[test]
    fn groups_of_any_size_are_named_by_number() {
        let of = source(4, 1 << 16, Record::Words(1));
        let by_number = Source { groups: Groups::ByNumber, ..of };
        let mut gathering = Gathering::new(&by_number, 1, 7);
        let requests = gathering.requests();
        assert_eq!(requests.len(), (1 << 16) / RUN as usize);
        assert_eq!(requests[1][14..20], [5, 2, 0x10, 0, 0x10, 0]);
        // The last element, behind which there is none.
        let mut report = vec![0; 12];
        report
            .extend_from_slice(&[0x88, 0xB5, 5, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 9]);
        assert_eq!(gathering.take(&report), Ok(Sender::Last));
        assert_eq!(gathering.requests().last().unwrap()[16..20], [0xF0, 0, 0x0F, 0xFF]);
        let mut clearing = Clearing::new(&by_number, 1, 9);
        assert!(clearing.requests().iter().all(|request| request[14..16] == [5, 4]));
    }

    proptest! {
        /// Whatever is received, no more elements are known than the report has records, and none
        /// is cleared that it does not say is.
        #[test]
        fn any_report_is_survived(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            // Of most packets: source, access, element behind, elements left, records, request.
            front in prop::option::weighted(0.9, (
                0..3_u8,
                2..5_u8,
                prop_oneof![Just(4096), any::<u16>()],
                0..2_u8,
                0..64_u8,
                0..2_u8,
            )),
        ) {
            if let Some(place) = bytes.get_mut(12..14) {
                place.copy_from_slice(&ETHER_TYPE.to_be_bytes());
            }
            if let Some(place) = bytes.get_mut(14..FRONT)
                && let Some((source, access, next, left, records, request)) = front
            {
                let [high, low] = next.to_be_bytes();
                let of = [source, access, high, low, 0, left, 0, 0, 0, records, 0, 0, 0, request];
                place.copy_from_slice(&of);
            }
            let mut gathering = Gathering::new(&source(0, 32768, Record::Counter), 0, 0);
            gathering.requests();
            let taken = gathering.take(&bytes);
            let known = gathering.parts.values().flatten().flatten().count();
            prop_assert!(known <= bytes.len().saturating_sub(FRONT) / Record::Counter.bytes());
            prop_assert!(known == 0 || taken == Ok(Sender::Last), "{:?}", taken);
            let mut clearing = Clearing::new(&source(2, 4096, Record::Words(5)), 0, 0);
            clearing.requests();
            let taken = clearing.take(&bytes);
            let is_end = bytes.get(16..20) == Some(&[0x10, 0, 0, 0]);
            prop_assert!(!clearing.is_complete() || is_end && taken == Ok(Sender::Last));
        }
    }
}
