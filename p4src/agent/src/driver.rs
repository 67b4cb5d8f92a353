//! The switch's driver for the daemon's threads: calls that wait, and changes of tables as the
//! differences between what they hold and what they should.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use calumma_bfrt::client::update;
use calumma_bfrt::proto::{Entity, EntityKind, TableEntry as Entry, Update, UpdateType};
use calumma_bfrt::{Client, ClientError, Info, InfoError, Options, Value};
use prost::Message;
use tokio::runtime::Runtime;

use crate::tables::{Match, TableEntry};

/// A connection to the driver, bound to the program. Clones share it; each may be used by a thread
/// of its own.
#[derive(Clone, Debug)]
pub struct Driver {
    runtime: Arc<Runtime>,
    client: Client,
}

impl Driver {
    /// Connects and binds.
    ///
    /// # Errors
    /// Nobody there, another program, a number that is taken.
    pub fn connect(runtime: &Arc<Runtime>, options: &Options) -> Result<Driver, ClientError> {
        let client = runtime.block_on(Client::connect(options.clone()))?;
        Ok(Driver { runtime: runtime.clone(), client })
    }

    /// The program's names.
    pub fn info(&self) -> &Info {
        self.client.info()
    }

    /// Makes changes in order.
    ///
    /// # Errors
    /// The first that was refused.
    pub fn write(&self, updates: Vec<Update>) -> Result<(), ClientError> {
        if updates.is_empty() {
            return Ok(());
        }
        self.runtime.block_on(self.client.write(updates))
    }

    /// All entries of a table, as the driver numbers them, without what happens on a miss.
    ///
    /// # Errors
    /// No such table, or the driver refuses.
    pub fn entries(&self, table: &str) -> Result<Vec<Entry>, ClientError> {
        let entity = self.info().table(table)?.entry(None, None);
        let mut entries = self.runtime.block_on(self.client.read(vec![entity]))?;
        entries.retain(|entry| !entry.is_default_entry);
        Ok(entries)
    }

    /// One entry of a table that no program declares; none where it is not there.
    ///
    /// # Errors
    /// No such table.
    pub fn fixed(&self, table: &str, key: (&str, u64)) -> Result<Option<Entry>, ClientError> {
        let table = self.info().table(table)?;
        let key = table.key(&[(key.0, calumma_bfrt::Match::Exact(key.1))])?;
        let read = self.client.read(vec![table.entry(Some(key), None)]);
        // To a driver, what is not there is an error like any other.
        Ok(self.runtime.block_on(read).ok().and_then(|mut entries| entries.pop()))
    }

    /// Puts an entry in the place of whatever a table that no program declares has for its key.
    ///
    /// # Errors
    /// No such table or field, or the driver refuses.
    pub fn put(
        &self,
        table: &str,
        key: (&str, u64),
        action: Option<&str>,
        values: &[(&str, Value)],
    ) -> Result<(), ClientError> {
        let table = self.info().table(table)?;
        let key = table.key(&[(key.0, calumma_bfrt::Match::Exact(key.1))])?;
        let data = table.data(action, values)?;
        // Often there is none.
        let delete = update(UpdateType::Delete, table.entry(Some(key.clone()), None));
        let _ = self.write(vec![delete]);
        self.write(vec![update(UpdateType::Insert, table.entry(Some(key), Some(data)))])
    }

    /// Elements of a register or counter.
    ///
    /// # Errors
    /// No such register, or the driver refuses.
    pub fn elements(&self, name: &str, range: Range<u32>) -> Result<Vec<Vec<u64>>, ClientError> {
        self.runtime.block_on(self.client.elements(name, range))
    }

    /// Sets elements of a register to zero.
    ///
    /// # Errors
    /// No such register, or the driver refuses.
    pub fn clear_elements(&self, name: &str, range: Range<u32>) -> Result<(), ClientError> {
        let table = self.info().table(name)?;
        let zeros = table.zeros()?;
        let mut updates = Vec::with_capacity(range.len());
        for index in range {
            let entity = table.entry(Some(table.index_key(index.into())?), Some(zeros.clone()));
            updates.push(update(UpdateType::Modify, entity));
        }
        self.write(updates)
    }

    /// Empties a table, or sets all of a register to zero.
    ///
    /// # Errors
    /// No such table, or the driver refuses.
    pub fn clear(&self, name: &str) -> Result<(), ClientError> {
        let entity = self.info().table(name)?.entry(None, None);
        self.write(vec![update(UpdateType::Delete, entity)])
    }

    /// Sets what a table does on a miss.
    ///
    /// # Errors
    /// No such table or action, or the driver refuses.
    pub fn set_default(
        &self,
        table: &str,
        action: &str,
        args: &[(&str, Value)],
    ) -> Result<(), ClientError> {
        let table = self.info().table(table)?;
        let data = table.data(Some(action), args)?;
        self.write(vec![update(UpdateType::Modify, table.default_entry(data))])
    }

    /// Entries by the driver's numbers.
    ///
    /// # Errors
    /// Something that the program does not have.
    pub fn numbered(&self, entries: &[TableEntry]) -> Result<Vec<Entry>, InfoError> {
        entries.iter().map(|entry| numbered(self.info(), entry)).collect()
    }

    /// Lets tables hold `wanted` beside what they hold already.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn add(&self, present: &[Entry], wanted: &[Entry]) -> Result<(), ClientError> {
        self.write(differences(present, wanted).1)
    }

    /// Lets tables hold `wanted` where they hold `present`; gives how many entries changed.
    ///
    /// # Errors
    /// When the driver refuses, for example because a table is full.
    pub fn change(&self, present: &[Entry], wanted: &[Entry]) -> Result<usize, ClientError> {
        // First what is deleted, so that there is room.
        let (mut updates, others) = differences(present, wanted);
        updates.extend(others);
        let changed = updates.len();
        self.write(updates)?;
        Ok(changed)
    }
}

/// An entry by the program's numbers.
pub(crate) fn numbered(info: &Info, entry: &TableEntry) -> Result<Entry, InfoError> {
    let keys: Vec<(&str, calumma_bfrt::Match)> = entry
        .keys
        .iter()
        .map(|&(name, field)| match field {
            Match::Exact(value) => (name, calumma_bfrt::Match::Exact(value.into())),
            Match::Range(low, high) => (name, calumma_bfrt::Match::Range(low.into(), high.into())),
            Match::Ternary(value, mask) => {
                (name, calumma_bfrt::Match::Ternary(value.into(), mask.into()))
            }
        })
        .collect();
    let args: Vec<(&str, u64)> =
        entry.args.iter().map(|&(name, value)| (name, value.into())).collect();
    self::entry(info, &entry.table, &keys, entry.action, &args)
}

/// An entry of a table of the program.
pub(crate) fn entry(
    info: &Info,
    table: &str,
    keys: &[(&str, calumma_bfrt::Match)],
    action: &str,
    args: &[(&str, u64)],
) -> Result<Entry, InfoError> {
    let table = info.table(table)?;
    let args: Vec<(&str, Value)> =
        args.iter().map(|&(name, value)| (name, Value::Number(value))).collect();
    let key = table.key(keys)?;
    let data = Some(table.data(Some(action), &args)?);
    if keys.is_empty() {
        return Ok(Entry { table_id: table.id, data, is_default_entry: true, ..Entry::default() });
    }
    Ok(Entry { table_id: table.id, key: Some(key), data, ..Entry::default() })
}

/// What makes entries the same: table and match, in one order of fields.
fn place(entry: &Entry) -> (u32, Vec<u8>) {
    let mut key = entry.key.clone().unwrap_or_default();
    key.fields.sort_by_key(|field| field.field_id);
    (entry.table_id, key.encode_to_vec())
}

/// The changes that lead from one set of entries to another: what is deleted, and the others.
fn differences(present: &[Entry], wanted: &[Entry]) -> (Vec<Update>, Vec<Update>) {
    let there: BTreeMap<_, _> = present.iter().map(|entry| (place(entry), entry)).collect();
    let then: BTreeMap<_, _> = wanted.iter().map(|entry| (place(entry), entry)).collect();
    let entity = |entry: Entry| Entity { entity: Some(EntityKind::TableEntry(entry)) };
    let (mut deleted, mut updates) = (Vec::new(), Vec::new());
    for (_, entry) in there.iter().filter(|(place, _)| !then.contains_key(place)) {
        let gone = Entry { data: None, ..(*entry).clone() };
        deleted.push(update(UpdateType::Delete, entity(gone)));
    }
    for (place, entry) in &then {
        let kind = match there.get(place) {
            Some(old) if old.data == entry.data => continue,
            Some(_) => UpdateType::Modify,
            // Something always happens on a miss.
            None if entry.is_default_entry => UpdateType::Modify,
            None => UpdateType::Insert,
        };
        updates.push(update(kind, entity((*entry).clone())));
    }
    (deleted, updates)
}

#[cfg(test)]
mod tests {
    use calumma_bfrt::proto::{
        DataField, DataValue, Exact, KeyField, MatchType, TableData, TableKey,
    };

    use super::*;

    fn entry(key: [u8; 2], data: u8) -> Entry {
        let field = |(field_id, value)| KeyField {
            field_id,
            match_type: Some(MatchType::Exact(Exact { value: vec![value] })),
        };
        let value = Some(DataValue::Stream(vec![data]));
        Entry {
            table_id: 5,
            key: Some(TableKey { fields: (1..).zip(key).map(field).collect() }),
            data: Some(TableData { action_id: 1, fields: vec![DataField { field_id: 1, value }] }),
            ..Entry::default()
        }
    }

    #[test]
    fn only_what_differs_is_changed() {
        let mut turned = entry([0, 1], 7);
        if let Some(key) = &mut turned.key {
            key.fields.reverse();
        }
        let present = [turned, entry([0, 2], 8), entry([0, 3], 9)];
        let wanted = [entry([0, 0], 1), entry([0, 1], 7), entry([0, 2], 80)];
        let kinds = |updates: Vec<Update>| -> Vec<UpdateType> {
            updates.iter().map(Update::r#type).collect()
        };
        let (deleted, others) = differences(&present, &wanted);
        assert_eq!(kinds(deleted), [UpdateType::Delete]);
        assert_eq!(kinds(others), [UpdateType::Insert, UpdateType::Modify]);
        assert_eq!(differences(&wanted, &wanted), (Vec::new(), Vec::new()));
        assert_eq!(differences(&[], &wanted).1.len(), 3);
        let on_a_miss = Entry { key: None, is_default_entry: true, ..entry([0, 0], 1) };
        assert_eq!(kinds(differences(&[], &[on_a_miss]).1), [UpdateType::Modify]);
    }
}
