//! The table of ports: what the control plane has brought up, as it wrote it. The model's ports carry
//! frames whatever it says.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use calumma_bfrt::proto::{DataField, DataValue, Entity, EntityKind, TableEntry, UpdateType};
use tonic::Status;

use crate::schema::port;
use crate::tables::exact;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Ports(Mutex<BTreeMap<u64, TableEntry>>);

impl Ports {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, TableEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one change.
    pub(crate) fn change(&self, kind: UpdateType, entry: TableEntry) -> Result<(), Status> {
        let Some(number) = number(&entry) else {
            return Err(Status::invalid_argument("$PORT: an entry without a number"));
        };
        let mut entries = self.entries();
        let there = entries.contains_key(&number);
        match kind {
            UpdateType::Insert if there => {
                return Err(Status::already_exists(format!(
                    "$PORT: port {number} is there already"
                )));
            }
            UpdateType::Modify | UpdateType::Delete if !there => {
                return Err(Status::not_found(format!("$PORT: there is no port {number}")));
            }
            UpdateType::Delete => entries.remove(&number),
            _ => entries.insert(number, entry),
        };
        Ok(())
    }

    /// The entry that a key names, or all of them. Ports are up at once.
    pub(crate) fn read(&self, entry: &TableEntry) -> Result<Vec<Entity>, Status> {
        let wanted = number(entry);
        let entries = self.entries();
        let found = entries.iter().filter(|(number, _)| wanted.is_none_or(|one| one == **number));
        let up = |(_, entry): (&u64, &TableEntry)| {
            let mut entry = entry.clone();
            let value = Some(DataValue::Bool(true));
            let fields = entry.data.iter_mut().flat_map(|data| Some(&mut data.fields));
            fields.for_each(|fields| {
                fields.push(DataField { field_id: port::UP, value: value.clone() })
            });
            Entity { entity: Some(EntityKind::TableEntry(entry)) }
        };
        let found: Vec<Entity> = found.map(up).collect();
        match wanted {
            Some(number) if found.is_empty() => {
                Err(Status::not_found(format!("$PORT: there is no port {number}")))
            }
            _ => Ok(found),
        }
    }
}

fn number(entry: &TableEntry) -> Option<u64> {
    entry.key.as_ref()?.fields.iter().find_map(exact)
}
