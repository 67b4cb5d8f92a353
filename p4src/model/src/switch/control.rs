//! The control plane: tables, registers, counters, value sets and digests, by name.
//!
//! Names are full (`SwitchIngress.array.bucket`) or any unambiguous end of that (`bucket`); a
//! leading `pipe.` is ignored.

use super::Switch;
use crate::error::ControlError;
use crate::exec::Count;
use crate::hash::{Crc, Function, HashSpec, Polynomial};
use crate::ir::{FieldMatch, MatchKind, Table};
use crate::program::find;
use crate::table::{self, check_field, normalize};
use crate::types::mask;
use std::sync::Arc;

/// An entry to add, or the match of one to change or delete. Key fields that are not given match
/// anything, where their kind allows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    keys: Vec<(String, FieldMatch)>,
    priority: u32,
    action: String,
    args: Vec<(String, u128)>,
}

impl Entry {
    /// An entry that runs `action`; empty where only the match counts.
    pub fn new(action: &str) -> Entry {
        Entry { action: action.to_owned(), ..Entry::default() }
    }

    /// The key field equals the value.
    pub fn exact(self, key: &str, value: impl Into<u128>) -> Entry {
        self.field(key, FieldMatch::Exact(value.into()))
    }

    /// The key field equals the value where the mask has ones.
    pub fn ternary(self, key: &str, value: impl Into<u128>, mask: impl Into<u128>) -> Entry {
        self.field(key, FieldMatch::Ternary { value: value.into(), mask: mask.into() })
    }

    /// The key field equals the value in its first `length` bits.
    pub fn lpm(self, key: &str, value: impl Into<u128>, length: u16) -> Entry {
        self.field(key, FieldMatch::Lpm { value: value.into(), length })
    }

    /// The key field lies between the bounds, both included.
    pub fn range(self, key: &str, low: impl Into<u128>, high: impl Into<u128>) -> Entry {
        self.field(key, FieldMatch::Range { low: low.into(), high: high.into() })
    }

    /// Any kind of match of a key field.
    pub fn field(mut self, key: &str, field: FieldMatch) -> Entry {
        self.keys.push((key.to_owned(), field));
        self
    }

    /// Lower wins; among equals the one that was added first. For ternary and range keys.
    pub fn priority(mut self, priority: u32) -> Entry {
        self.priority = priority;
        self
    }

    /// Action data.
    pub fn arg(mut self, name: &str, value: impl Into<u128>) -> Entry {
        self.args.push((name.to_owned(), value.into()));
        self
    }
}

/// An entry as a table holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryInfo {
    /// The match of each key field, in the order of the table.
    pub keys: Vec<FieldMatch>,
    /// Lower wins.
    pub priority: u32,
    /// Full name of the action.
    pub action: String,
    /// Action data in the order of the parameters.
    pub args: Vec<u128>,
    /// Of the table's direct counter, if it has one.
    pub count: Count,
}

/// A digest message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestRecord {
    /// Full name of the Digest instance.
    pub name: String,
    /// Fields in order.
    pub fields: Vec<(String, u128)>,
}

impl Switch {
    /// Adds an entry.
    ///
    /// # Errors
    /// A name is unknown, a value does not fit, the table is full, const, or has that match.
    pub fn add_entry(&mut self, table: &str, entry: &Entry) -> Result<(), ControlError> {
        let (index, keys, priority) = self.resolve(table, entry)?;
        let (action, args) = self.action(index, &entry.action, &entry.args, false)?;
        let spec = &self.program.code.tables[index];
        let state = Arc::make_mut(&mut self.machine.tables[index]);
        if state.find(&keys, priority).is_some() {
            let key = describe(spec, &keys);
            return Err(ControlError::Exists { table: spec.name.clone(), key });
        }
        if state.len() >= spec.size {
            return Err(ControlError::TableFull { table: spec.name.clone(), size: spec.size });
        }
        let count = Count::default();
        state.insert(table::Entry { keys, priority, action, args, count });
        Ok(())
    }

    /// Gives an entry another action or other data; its counter stays.
    ///
    /// # Errors
    /// As [`Switch::add_entry`], and when there is no entry with that match.
    pub fn modify_entry(&mut self, table: &str, entry: &Entry) -> Result<(), ControlError> {
        let (index, keys, priority) = self.resolve(table, entry)?;
        let (action, args) = self.action(index, &entry.action, &entry.args, false)?;
        let found = self.find_entry(index, &keys, priority)?;
        let found = Arc::make_mut(&mut self.machine.tables[index]).entry_mut(found);
        found.action = action;
        found.args = args;
        Ok(())
    }

    /// Deletes the entry with that match.
    ///
    /// # Errors
    /// A name is unknown, the entries are const, or there is no such entry.
    pub fn delete_entry(&mut self, table: &str, entry: &Entry) -> Result<(), ControlError> {
        let (index, keys, priority) = self.resolve(table, entry)?;
        let found = self.find_entry(index, &keys, priority)?;
        Arc::make_mut(&mut self.machine.tables[index]).remove(found);
        Ok(())
    }

    /// Deletes all entries.
    ///
    /// # Errors
    /// The table is unknown or its entries are const.
    pub fn clear_table(&mut self, table: &str) -> Result<(), ControlError> {
        let index = self.program.table_index(table)?;
        let spec = &self.program.code.tables[index];
        if spec.entries_const {
            return Err(const_entries(spec));
        }
        let state = Arc::make_mut(&mut self.machine.tables[index]);
        let all: Vec<_> = state.entries().map(|e| (e.keys.clone(), e.priority)).collect();
        for (keys, priority) in all {
            if let Some(found) = state.find(&keys, priority) {
                state.remove(found);
            }
        }
        Ok(())
    }

    /// All entries of a table, in no particular order.
    ///
    /// # Errors
    /// The table is unknown.
    pub fn entries(&self, table: &str) -> Result<Vec<EntryInfo>, ControlError> {
        let index = self.program.table_index(table)?;
        let spec = &self.program.code.tables[index];
        let info = |entry: &table::Entry| EntryInfo {
            keys: entry.keys.clone(),
            priority: entry.priority,
            action: spec.actions[entry.action as usize].name.clone(),
            args: entry.args.clone(),
            count: entry.count,
        };
        Ok(self.machine.tables[index].entries().map(info).collect())
    }

    /// What happens on a miss: an entry without a match.
    ///
    /// # Errors
    /// The table is unknown.
    pub fn default_entry(&self, table: &str) -> Result<EntryInfo, ControlError> {
        let index = self.program.table_index(table)?;
        let state = &self.machine.tables[index];
        let action = &self.program.code.tables[index].actions[state.default_action as usize];
        Ok(EntryInfo {
            keys: Vec::new(),
            priority: 0,
            action: action.name.clone(),
            args: state.default_args.clone(),
            count: Count::default(),
        })
    }

    /// Sets what happens on a miss. The default of a hash's table `algorithm` is what it computes:
    /// action `user_defined`.
    ///
    /// # Errors
    /// A name is unknown, a value does not fit, or the default is const.
    pub fn set_default_action(
        &mut self,
        table: &str,
        action: &str,
        args: &[(&str, u128)],
    ) -> Result<(), ControlError> {
        if let Some(hash) = table.strip_suffix(".algorithm") {
            return self.set_algorithm(hash, action, args);
        }
        let index = self.program.table_index(table)?;
        if self.program.code.tables[index].default_const {
            let place = self.program.code.tables[index].name.clone();
            let problem = "its default action is const".to_owned();
            return Err(ControlError::Invalid { place, problem });
        }
        let args: Vec<_> = args.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let (action, args) = self.action(index, action, &args, true)?;
        let state = Arc::make_mut(&mut self.machine.tables[index]);
        state.default_action = action;
        state.default_args = args;
        Ok(())
    }

    /// Gives a hash that computes a CRC another one.
    fn set_algorithm(
        &mut self,
        hash: &str,
        action: &str,
        args: &[(&str, u128)],
    ) -> Result<(), ControlError> {
        let index = find("hash", hash, self.program.code.hashes.iter().map(|hash| &*hash.name))?;
        let HashSpec { name, function, width } = &mut self.machine.hashes[index];
        let invalid = |problem: &str| {
            let (place, problem) = (format!("{name}.algorithm"), problem.to_owned());
            Err(ControlError::Invalid { place, problem })
        };
        if !matches!(function, Function::Crc(_)) || action != "user_defined" {
            return invalid("only CRCs can be changed, by the action user_defined");
        }
        let mut crc = Polynomial {
            width: *width,
            coefficients: 0,
            reflected: false,
            initial: 0,
            last_xor: 0,
        };
        for &(name, value) in args {
            let Ok(value) = u64::try_from(value) else {
                return invalid("a value of 64 bits at most");
            };
            match name {
                "polynomial" => crc.coefficients = value,
                "reverse" => crc.reflected = value != 0,
                "init" => crc.initial = value,
                "final_xor" => crc.last_xor = value,
                "hash_bit_width" if (u64::from(*width)..=64).contains(&value) => {
                    crc.width = value as u16
                }
                "msb" | "extend" if value == 0 => {}
                other => {
                    return invalid(&format!("`{other}` = {value} is not supported by the model"));
                }
            }
        }
        if let Some(problem) = crc.problem() {
            return invalid(&problem);
        }
        *function = Function::Crc(Box::new(Crc::new(crc)));
        Ok(())
    }

    /// One element of a register: one value, or two.
    ///
    /// # Errors
    /// The register is unknown or has no such element.
    pub fn read_register(&self, register: &str, index: usize) -> Result<Vec<u32>, ControlError> {
        let (register, lanes) = self.element(register, index)?;
        let state = &self.machine.registers[register];
        Ok((0..lanes).map(|lane| state.lanes[lane][index]).collect())
    }

    /// All elements: for each of the register's values (lanes) one slice.
    ///
    /// # Errors
    /// The register is unknown.
    pub fn read_register_lanes(&self, register: &str) -> Result<Vec<&[u32]>, ControlError> {
        let (register, lanes) = self.element(register, 0)?;
        let state = &self.machine.registers[register];
        Ok((0..lanes).map(|lane| &state.lanes[lane][..]).collect())
    }

    /// Writes one element.
    ///
    /// # Errors
    /// The register is unknown, has no such element, or the values do not fit.
    pub fn write_register(
        &mut self,
        register: &str,
        index: usize,
        values: &[u32],
    ) -> Result<(), ControlError> {
        let (register, _) = self.element(register, index)?;
        self.check_values(register, values)?;
        for (lane, value) in values.iter().enumerate() {
            self.machine.registers[register].lanes[lane][index] = *value;
        }
        Ok(())
    }

    /// Writes all elements alike.
    ///
    /// # Errors
    /// The register is unknown or the values do not fit.
    pub fn fill_register(&mut self, register: &str, values: &[u32]) -> Result<(), ControlError> {
        let (register, _) = self.element(register, 0)?;
        self.check_values(register, values)?;
        for (lane, value) in values.iter().enumerate() {
            self.machine.registers[register].lanes[lane].fill(*value);
        }
        Ok(())
    }

    /// One element of a counter.
    ///
    /// # Errors
    /// The counter is unknown or has no such element.
    pub fn read_counter(&self, counter: &str, index: usize) -> Result<Count, ControlError> {
        let found = self.program.counter_index(counter)?;
        match self.machine.counters[found].get(index) {
            Some(count) => Ok(*count),
            None => Err(no_element(&self.program.code.counters[found].name, index)),
        }
    }

    /// Replaces the members of a parser value set: (value, mask).
    ///
    /// # Errors
    /// The set is unknown, too small, or a value does not fit.
    pub fn set_value_set(
        &mut self,
        set: &str,
        members: &[(u128, u128)],
    ) -> Result<(), ControlError> {
        let found = self.program.value_set_index(set)?;
        let spec = &self.program.code.value_sets[found];
        if members.len() > spec.size {
            return Err(ControlError::TableFull { table: spec.name.clone(), size: spec.size });
        }
        if members.iter().any(|(value, bits)| (value | bits) > mask(spec.width)) {
            let problem = format!("a member does not fit in {} bits", spec.width);
            return Err(ControlError::Invalid { place: spec.name.clone(), problem });
        }
        let members = members.iter().map(|(value, mask)| (value & mask, *mask));
        self.machine.value_sets[found] = members.collect();
        Ok(())
    }

    /// The digests since the last call, oldest first.
    pub fn take_digests(&mut self) -> Vec<DigestRecord> {
        let specs = &self.program.code.digests;
        let record = |message: crate::exec::DigestMessage| {
            let spec = &specs[message.digest as usize];
            let names = spec.fields.iter().map(|(name, _)| name.clone());
            DigestRecord { name: spec.name.clone(), fields: names.zip(message.values).collect() }
        };
        self.machine.digests.drain(..).map(record).collect()
    }

    /// The table, the match of each key field in order, and the priority.
    fn resolve(
        &self,
        table: &str,
        entry: &Entry,
    ) -> Result<(usize, Vec<FieldMatch>, u32), ControlError> {
        let index = self.program.table_index(table)?;
        let spec = &self.program.code.tables[index];
        if spec.entries_const {
            return Err(const_entries(spec));
        }
        let mut given = vec![None; spec.keys.len()];
        for (name, field) in &entry.keys {
            let key = find("key field", name, spec.keys.iter().map(|key| &*key.name))?;
            given[key] = Some(*field);
        }
        let mut keys = Vec::new();
        for (key, field) in spec.keys.iter().zip(given) {
            let invalid = |problem: String| ControlError::Invalid {
                place: format!("{} key {}", spec.name, key.name),
                problem,
            };
            let field = match (field, key.kind) {
                (Some(field), _) => field,
                (None, MatchKind::Exact) => return Err(invalid("no value is given".into())),
                (None, MatchKind::Ternary) => FieldMatch::Ternary { value: 0, mask: 0 },
                (None, MatchKind::Lpm) => FieldMatch::Lpm { value: 0, length: 0 },
                (None, MatchKind::Range) => FieldMatch::Range { low: 0, high: mask(key.width) },
            };
            check_field(&field, key.kind, key.width).map_err(invalid)?;
            keys.push(normalize(field, key.width));
        }
        Ok((index, keys, if spec.is_ordered() { entry.priority } else { 0 }))
    }

    fn find_entry(
        &self,
        table: usize,
        keys: &[FieldMatch],
        priority: u32,
    ) -> Result<u32, ControlError> {
        let spec = &self.program.code.tables[table];
        let key = || describe(spec, keys);
        let missing = || ControlError::NoEntry { table: spec.name.clone(), key: key() };
        self.machine.tables[table].find(keys, priority).ok_or_else(missing)
    }

    /// The action's index and its data in order.
    fn action(
        &self,
        table: usize,
        name: &str,
        args: &[(String, u128)],
        as_default: bool,
    ) -> Result<(u32, Vec<u128>), ControlError> {
        let spec = &self.program.code.tables[table];
        let index = find("action", name, spec.actions.iter().map(|action| &*action.name))?;
        let action = &spec.actions[index];
        let place = format!("{} action {}", spec.name, action.name);
        let invalid = |problem: String| ControlError::Invalid { place: place.clone(), problem };
        if action.default_only && !as_default {
            return Err(invalid("it is for the default only".into()));
        }
        if action.table_only && as_default {
            return Err(invalid("it can't be the default".into()));
        }
        let mut values = Vec::new();
        for param in &action.params {
            let Some((_, value)) = args.iter().find(|(name, _)| *name == param.name) else {
                return Err(invalid(format!("`{}` is missing", param.name)));
            };
            if *value > mask(param.width) {
                let problem =
                    format!("`{}` = {value} does not fit in {} bits", param.name, param.width);
                return Err(invalid(problem));
            }
            values.push(*value);
        }
        match args.iter().find(|(name, _)| action.params.iter().all(|p| p.name != *name)) {
            Some((name, _)) => Err(invalid(format!("it has no parameter `{name}`"))),
            None => Ok((index as u32, values)),
        }
    }

    /// The register and how many values an element has.
    fn element(&self, register: &str, index: usize) -> Result<(usize, usize), ControlError> {
        let found = self.program.register_index(register)?;
        let spec = &self.program.code.registers[found];
        if index >= spec.size {
            return Err(no_element(&spec.name, index));
        }
        Ok((found, spec.lanes.len()))
    }

    fn check_values(&self, register: usize, values: &[u32]) -> Result<(), ControlError> {
        let spec = &self.program.code.registers[register];
        let fits = |(value, lane): (&u32, &(String, u16))| u128::from(*value) <= mask(lane.1);
        if values.len() == spec.lanes.len() && values.iter().zip(&spec.lanes).all(fits) {
            return Ok(());
        }
        let widths: Vec<String> =
            spec.lanes.iter().map(|lane| format!("bit<{}>", lane.1)).collect();
        let problem = format!("{values:?} does not fit an element of {}", widths.join(", "));
        Err(ControlError::Invalid { place: spec.name.clone(), problem })
    }
}

fn no_element(place: &str, index: usize) -> ControlError {
    ControlError::Invalid { place: place.to_owned(), problem: format!("no element {index}") }
}

fn const_entries(table: &Table) -> ControlError {
    let problem = "its entries are const".to_owned();
    ControlError::Invalid { place: table.name.clone(), problem }
}

/// The match as an error shows it.
fn describe(table: &Table, keys: &[FieldMatch]) -> String {
    let fields = table.keys.iter().zip(keys).map(|(key, field)| {
        let value = match field {
            FieldMatch::Exact(value) => format!("{value:#x}"),
            FieldMatch::Ternary { value, mask } => format!("{value:#x} &&& {mask:#x}"),
            FieldMatch::Lpm { value, length } => format!("{value:#x}/{length}"),
            FieldMatch::Range { low, high } => format!("{low}..{high}"),
        };
        format!("{} = {value}", key.name)
    });
    fields.collect::<Vec<_>>().join(", ")
}
