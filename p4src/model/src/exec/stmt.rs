//! Runs statements.

use std::sync::Arc;

use super::expr::fold;
use super::{DigestMessage, Machine};
use crate::ir::{Block, Code, CounterKind, Data, Expr, Slot, Stmt};
use crate::types::mask;

/// How a statement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Return,
    Exit,
}

impl Machine {
    /// Runs the statements. The two kinds that make up most of every program are handled here, so
    /// that they cost no call of their own.
    pub(super) fn run(&mut self, code: &Code, block: &Block) -> Flow {
        for stmt in block {
            let flow = match stmt {
                Stmt::Set { slot, value } => {
                    self.frame[*slot as usize] = self.eval(code, value);
                    Flow::Next
                }
                Stmt::If { condition, then, otherwise } => {
                    let holds = match condition {
                        Expr::Is { slot, value } => self.frame[*slot as usize] == *value,
                        condition => self.eval(code, condition) != 0,
                    };
                    if self.exiting {
                        return Flow::Exit;
                    }
                    self.run(code, if holds { then } else { otherwise })
                }
                other => self.step(code, other),
            };
            if flow != Flow::Next {
                return flow;
            }
        }
        Flow::Next
    }

    fn step(&mut self, code: &Code, stmt: &Stmt) -> Flow {
        match stmt {
            Stmt::Set { .. } | Stmt::If { .. } => {}
            Stmt::SetBits { slot, low, width, value } => {
                let value = self.eval(code, value);
                let slot = &mut self.frame[*slot as usize];
                *slot = *slot & !(mask(*width) << low) | value << low;
            }
            Stmt::Copy { to, from, count } => {
                let from = *from as usize;
                self.frame.copy_within(from..from + *count as usize, *to as usize);
            }
            Stmt::Do(value) => {
                self.eval(code, value);
                if self.exiting {
                    return Flow::Exit;
                }
            }
            Stmt::Apply(table) => return self.apply(code, *table),
            Stmt::Switch { table, cases, blocks } => {
                let ran = self.frame[code.tables[*table as usize].ran as usize] as usize;
                if let Some(block) = cases[ran] {
                    return self.run(code, &blocks[block as usize]);
                }
            }
            Stmt::Scope { body, after } => {
                let flow = self.run(code, body);
                self.run(code, after);
                if flow == Flow::Exit {
                    return flow;
                }
            }
            Stmt::Call(body) => return self.run(code, &code.bodies[*body as usize]),
            Stmt::Return => return Flow::Return,
            Stmt::Exit => {
                self.exiting = true;
                return Flow::Exit;
            }
            Stmt::Register { action, index, .. } => {
                let index = self.eval(code, index);
                self.register(code, *action, index);
            }
            Stmt::Count { counter, index } => {
                let index = self.eval(code, index);
                let bytes = self.packet_bytes;
                let cells = &mut self.counters[*counter as usize];
                match usize::try_from(index).ok().and_then(|index| cells.get_mut(index)) {
                    Some(cell) => add(cell, code.counters[*counter as usize].kind, bytes),
                    None => self.out_of_range += 1,
                }
            }
            Stmt::CountDirect(kind) => {
                if let Some((table, entry)) = self.entry {
                    let bytes = self.packet_bytes;
                    let entry = Arc::make_mut(&mut self.tables[table as usize]).entry_mut(entry);
                    add(&mut entry.count, *kind, bytes);
                }
            }
            Stmt::Extract { header, layout } => {
                self.extract(*header, &code.layouts[*layout as usize]);
                return self.parser_flow();
            }
            Stmt::ExtractNext { stack, layout, size, count } => {
                self.extract_next(*stack, &code.layouts[*layout as usize], *size, *count);
                return self.parser_flow();
            }
            Stmt::Advance(by) => {
                let by = self.eval(code, by);
                self.advance(by);
                return self.parser_flow();
            }
            Stmt::SubParser(parser) => {
                self.run_parser(code, *parser);
                return self.parser_flow();
            }
            Stmt::Shift { stack, size, count, by } => self.shift(*stack, *size, *count, *by),
            Stmt::Emit { header, layout } => {
                self.emit(*header, &code.layouts[*layout as usize]);
            }
            Stmt::ChecksumAdd { unit, data, subtract } => {
                let sum = self.sum(code, data);
                let sum = if *subtract { !sum } else { sum };
                let unit = &mut self.checksums[*unit as usize];
                *unit = u32::from(fold(*unit + u32::from(sum)));
            }
            Stmt::Mirror { session, data } => {
                let session = self.eval(code, session) as u16;
                self.mirror = Some((session, self.header(code, data)));
            }
            Stmt::Resubmit { data } => self.resubmit = Some(self.header(code, data)),
            Stmt::Digest { digest, data } => {
                let mut values = Vec::with_capacity(data.fields.len());
                for field in &data.fields {
                    values.push(self.eval(code, &field.value));
                }
                self.digests.push_back(DigestMessage { digest: *digest, values });
            }
        }
        Flow::Next
    }

    /// An error ends the state.
    fn parser_flow(&self) -> Flow {
        if self.parser_error == 0 { Flow::Next } else { Flow::Exit }
    }

    fn header(&mut self, code: &Code, data: &Data) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.serialize(code, data, &mut bytes);
        bytes
    }

    fn apply(&mut self, code: &Code, index: u32) -> Flow {
        let table = &code.tables[index as usize];
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        for field in &table.keys {
            let value = self.eval(code, &field.value);
            key.push(value);
        }
        let state = &self.tables[index as usize];
        let found = state.lookup(&mut key);
        self.key = key;
        let (action, args) = match found {
            Some(entry) => {
                let entry = state.entry(entry);
                (entry.action, &entry.args)
            }
            None => (state.default_action, &state.default_args),
        };
        let action_code = &table.actions[action as usize];
        for (param, value) in action_code.params.iter().zip(args) {
            self.frame[param.slot as usize] = *value;
        }
        self.entry = found.map(|entry| (index, entry));
        self.frame[table.hit as usize] = u128::from(found.is_some());
        self.frame[table.ran as usize] = u128::from(action);
        self.run(code, &action_code.body)
    }

    /// Reads the element, runs the action's body, writes the element back.
    fn register(&mut self, code: &Code, action: u32, index: u128) {
        let action = &code.register_actions[action as usize];
        if let Some(result) = action.result {
            self.frame[result as usize] = 0;
        }
        let state = &self.registers[action.register as usize];
        let lanes = code.registers[action.register as usize].lanes.len();
        let Some(index) = usize::try_from(index).ok().filter(|&i| i < state.lanes[0].len()) else {
            self.out_of_range += 1;
            return;
        };
        let value = action.value as usize;
        for lane in 0..lanes {
            self.frame[value + lane] = u128::from(state.lanes[lane][index]);
        }
        self.run(code, &action.body);
        let state = &mut self.registers[action.register as usize];
        for lane in 0..lanes {
            state.lanes[lane][index] = self.frame[value + lane] as u32;
        }
    }

    /// Moves the elements of a stack; those that come in are invalid.
    fn shift(&mut self, stack: Slot, size: u32, count: u32, by: i32) {
        let (first, size) = (stack as usize + 1, size as usize);
        let moved = by.unsigned_abs() as usize * size;
        let end = first + count as usize * size;
        if by > 0 {
            self.frame.copy_within(first..end - moved, first + moved);
            self.frame[first..first + moved].fill(0);
        } else {
            self.frame.copy_within(first + moved..end, first);
            self.frame[end - moved..end].fill(0);
        }
        let next = self.frame[stack as usize] as i64 + i64::from(by);
        self.frame[stack as usize] = next.clamp(0, i64::from(count)) as u128;
    }
}

fn add(cell: &mut super::Count, kind: CounterKind, bytes: u64) {
    if kind != CounterKind::Bytes {
        cell.packets += 1;
    }
    if kind != CounterKind::Packets {
        cell.bytes += bytes;
    }
}
