//! Runs parsers.

use super::{
    Machine, PARSER_ERROR_DST_CONT, PARSER_ERROR_NO_MATCH, PARSER_ERROR_PARTIAL_HDR,
    PARSER_ERROR_TIMEOUT_HW, bits,
};
use crate::ir::{Code, KeySet, Layout, Next, Slot, Target};

/// States that one parser may pass; hardware gives up after some cycles too.
const MAX_STATES: usize = 256;

impl Machine {
    /// Runs a parser until it accepts or an error stops it.
    pub(super) fn run_parser(&mut self, code: &Code, parser: u32) {
        let parser = &code.parsers[parser as usize];
        let mut target = parser.start;
        for _ in 0..MAX_STATES {
            let Target::State(state) = target else {
                if target == Target::Reject {
                    self.parser_error |= PARSER_ERROR_NO_MATCH;
                }
                return;
            };
            let state = &parser.states[state as usize];
            self.run(code, &state.body);
            if self.parser_error != 0 {
                return;
            }
            target = match &state.next {
                Next::To(target) => *target,
                Next::Select { values, cases } => {
                    let mut key = std::mem::take(&mut self.key);
                    key.clear();
                    for value in values {
                        key.push(self.eval(code, value));
                    }
                    let found = cases.iter().find(|(sets, _)| {
                        sets.iter().zip(&key).all(|(set, &value)| self.contains(set, value))
                    });
                    self.key = key;
                    if self.parser_error != 0 {
                        return;
                    }
                    found.map_or(Target::Reject, |(_, target)| *target)
                }
            };
        }
        self.parser_error |= PARSER_ERROR_TIMEOUT_HW;
    }

    fn contains(&self, set: &KeySet, value: u128) -> bool {
        match set {
            KeySet::Any => true,
            KeySet::Masked { value: wanted, mask } => value & mask == *wanted,
            KeySet::Range { low, high } => (*low..=*high).contains(&value),
            KeySet::ValueSet(set) => {
                self.value_sets[*set as usize].iter().any(|(wanted, mask)| value & mask == *wanted)
            }
        }
    }

    /// Reads a header at the cursor and passes it.
    pub(super) fn extract(&mut self, header: Slot, layout: &Layout) {
        let end = self.cursor + layout.bits as usize;
        if end > self.input.len() * 8 {
            self.parser_error |= PARSER_ERROR_PARTIAL_HDR;
            return;
        }
        let base = header as usize;
        self.frame[base] = 1;
        for field in &layout.fields {
            let at = self.cursor + field.bit as usize;
            self.frame[base + field.slot as usize] = bits::read(&self.input, at, field.width);
        }
        self.cursor = end;
    }

    /// Reads the next header of a stack.
    pub(super) fn extract_next(&mut self, stack: Slot, layout: &Layout, size: u32, count: u32) {
        let index = self.frame[stack as usize] as u32;
        if index >= count {
            self.parser_error |= PARSER_ERROR_DST_CONT;
            return;
        }
        self.extract(stack + 1 + index * size, layout);
        self.frame[stack as usize] += 1;
    }

    pub(super) fn advance(&mut self, by: u128) {
        let end = usize::try_from(by).ok().and_then(|by| self.cursor.checked_add(by));
        match end {
            Some(end) if end <= self.input.len() * 8 => self.cursor = end,
            _ => self.parser_error |= PARSER_ERROR_PARTIAL_HDR,
        }
    }

    /// Writes a header, if it is valid, at the end of the output.
    pub(super) fn emit(&mut self, header: Slot, layout: &Layout) {
        let base = header as usize;
        if self.frame[base] == 0 {
            return;
        }
        let start = self.output.len();
        self.output.resize(start + layout.bits as usize / 8, 0);
        for field in &layout.fields {
            let value = self.frame[base + field.slot as usize];
            bits::write(&mut self.output[start..], field.bit as usize, field.width, value);
        }
    }
}
