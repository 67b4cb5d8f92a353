//! Runs a loaded program on packets.
//!
//! A [`Machine`] is the state that packets change (frame, registers, counters) and that the
//! control plane fills (tables, value sets). It executes one gress on one packet: parser, control,
//! deparser. What happens between the gresses is the switch's ([`crate::switch`]).

pub(crate) mod bits;
mod expr;
mod parser;
mod stmt;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::hash::HashSpec;
use crate::ir::{Code, Data, Gress};
use crate::table::TableState;

/// Bits of `parser_err`.
pub(crate) const PARSER_ERROR_NO_MATCH: u16 = 0x0001;
pub(crate) const PARSER_ERROR_PARTIAL_HDR: u16 = 0x0002;
pub(crate) const PARSER_ERROR_TIMEOUT_HW: u16 = 0x0010;
pub(crate) const PARSER_ERROR_DST_CONT: u16 = 0x0040;

/// The elements of one register; the second lane is empty for plain values.
#[derive(Debug, Clone)]
pub(crate) struct RegisterState {
    pub(crate) lanes: [Vec<u32>; 2],
}

/// What a counter holds at one index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets seen.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A message that the ingress deparser sent to the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DigestMessage {
    pub(crate) digest: u32,
    pub(crate) values: Vec<u128>,
}

/// The state of a running program.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) frame: Vec<u128>,
    pub(crate) tables: Vec<Arc<TableState>>,
    pub(crate) registers: Vec<RegisterState>,
    pub(crate) counters: Vec<Vec<Count>>,
    /// As the program has them until the control plane gives one another polynomial.
    pub(crate) hashes: Vec<HashSpec>,
    /// Values and masks.
    pub(crate) value_sets: Vec<Vec<(u128, u128)>>,
    pub(crate) digests: VecDeque<DigestMessage>,
    /// What the parser reads: intrinsic metadata and the packet.
    pub(crate) input: Vec<u8>,
    /// Next bit that the parser reads.
    pub(crate) cursor: usize,
    pub(crate) parser_error: u16,
    /// What the deparser wrote.
    pub(crate) output: Vec<u8>,
    /// Bytes of the packet, for byte counters.
    pub(crate) packet_bytes: u64,
    /// Session and header of a mirrored copy.
    pub(crate) mirror: Option<(u16, Vec<u8>)>,
    /// The bits that a resubmitted packet carries.
    pub(crate) resubmit: Option<Vec<u8>>,
    /// Accesses to register elements that don't exist.
    pub(crate) out_of_range: u64,
    /// An action that an expression ran has left the control with `exit`.
    exiting: bool,
    /// Table and entry whose action runs, after a hit.
    entry: Option<(u32, u32)>,
    checksums: Vec<u32>,
    random: u64,
    /// Buffers that keep their memory between packets.
    bytes: Vec<u8>,
    key: Vec<u128>,
}

impl Machine {
    pub(crate) fn new(code: &Code) -> Machine {
        let first_tables =
            || code.tables.iter().map(|table| Arc::new(TableState::new(table))).collect();
        let registers = code.registers.iter().map(|register| {
            let lane = |lane: usize| match register.lanes.get(lane) {
                Some(_) => vec![register.initial[lane]; register.size],
                None => Vec::new(),
            };
            RegisterState { lanes: [lane(0), lane(1)] }
        });
        Machine {
            frame: vec![0; code.frame],
            tables: code.first_tables.get_or_init(first_tables).clone(),
            registers: registers.collect(),
            counters: code.counters.iter().map(|c| vec![Count::default(); c.size]).collect(),
            hashes: code.hashes.clone(),
            value_sets: vec![Vec::new(); code.value_sets.len()],
            digests: VecDeque::new(),
            input: Vec::new(),
            cursor: 0,
            parser_error: 0,
            output: Vec::new(),
            packet_bytes: 0,
            mirror: None,
            resubmit: None,
            out_of_range: 0,
            exiting: false,
            entry: None,
            checksums: vec![0; code.checksum_units],
            random: 0x9e37_79b9_7f4a_7c15,
            bytes: Vec::new(),
            key: Vec::new(),
        }
    }

    /// Parses `input`. False if the packet is dropped for a parser error.
    pub(crate) fn parse(&mut self, code: &Code, gress: &Gress, may_drop: bool, now: u64) -> bool {
        self.frame[gress.slots.clone()].fill(0);
        self.checksums.fill(0);
        self.cursor = 0;
        self.parser_error = 0;
        self.mirror = None;
        self.resubmit = None;
        self.run_parser(code, gress.parser);
        self.frame[gress.global_tstamp as usize] = u128::from(now) & 0xffff_ffff_ffff;
        self.frame[gress.parser_err as usize] = u128::from(self.parser_error);
        self.parser_error == 0 || gress.reads_parser_err || !may_drop
    }

    /// Runs the control and the deparser. `output` holds the headers, `payload` is what follows.
    pub(crate) fn process(&mut self, code: &Code, gress: &Gress) {
        self.exiting = false;
        self.run(code, &gress.control);
        self.exiting = false;
        self.output.clear();
        self.run(code, &gress.deparser);
    }

    /// The part of the packet that the parser did not pass.
    pub(crate) fn payload(&self) -> &[u8] {
        self.input.get(self.cursor / 8..).unwrap_or(&[])
    }

    /// Puts the data one after the other into `out`, zero bits in front if they fill no whole
    /// number of bytes.
    fn serialize(&mut self, code: &Code, data: &Data, out: &mut Vec<u8>) {
        out.clear();
        let mut total = 0;
        for field in &data.fields {
            if field.valid.is_none_or(|slot| self.frame[slot as usize] != 0) {
                total += usize::from(field.width);
            }
        }
        let mut at = total.next_multiple_of(8) - total;
        out.resize(total.div_ceil(8), 0);
        for field in &data.fields {
            if field.valid.is_none_or(|slot| self.frame[slot as usize] != 0) {
                let value = self.eval(code, &field.value);
                bits::write(out, at, field.width, value);
                at += usize::from(field.width);
            }
        }
    }
}
