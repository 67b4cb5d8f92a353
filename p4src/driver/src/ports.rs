//! The table of ports: what the control plane has brought up, as it wrote it, and that of what they
//! count. The model's ports carry and count frames, whether they are enabled or not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use calumma_bfrt::proto::{
    DataField, DataValue, Entity, EntityKind, TableData, TableEntry, UpdateType,
};
use tonic::Status;

use crate::pipe::{Counts, PortCount};
use crate::schema::port;
use crate::tables::{exact, index_key, stream};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Ports {
    entries: Mutex<BTreeMap<u64, TableEntry>>,
    counts: Arc<Counts>,
}

impl Ports {
    pub(crate) fn new(counts: Arc<Counts>) -> Ports {
        Ports { entries: Mutex::default(), counts }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, TableEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
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
            _ => {
                // A port that is added anew counts from nothing.
                let plug = u16::try_from(number).ok().and_then(|number| self.counts.get(&number));
                if let Some(count) = plug.filter(|_| !there) {
                    count.clear();
                }
                entries.insert(number, as_answered(entry))
            }
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

    /// What a port has counted, or each of them.
    pub(crate) fn read_counts(&self, entry: &TableEntry) -> Result<Vec<Entity>, Status> {
        let wanted = number(entry);
        let found =
            self.counts.iter().filter(|(one, _)| wanted.is_none_or(|n| n == u64::from(**one)));
        let found: Vec<Entity> = found.map(|(number, count)| counted(*number, count)).collect();
        match wanted {
            Some(number) if found.is_empty() => {
                Err(Status::not_found(format!("$PORT_STAT: there is no port {number}")))
            }
            _ => Ok(found),
        }
    }
}

/// An entry with the words that the driver has for it.
fn as_answered(mut entry: TableEntry) -> TableEntry {
    for field in entry.data.iter_mut().flat_map(|data| &mut data.fields) {
        if let (port::FEC, Some(DataValue::Str(word))) = (field.field_id, &mut field.value)
            && let Some([answered, _]) = port::SAME_FEC.iter().find(|same| same.contains(&&**word))
        {
            *word = (*answered).to_owned();
        }
    }
    entry
}

fn counted(number: u16, count: &PortCount) -> Entity {
    let field = |id, count: &AtomicU64| {
        stream(id, u128::from(count.load(Ordering::Relaxed)), u64::BITS as u16)
    };
    let mut fields = vec![
        field(port::RECEIVED_FRAMES, &count.received.frames),
        field(port::RECEIVED_OCTETS, &count.received.octets),
        field(port::SENT_FRAMES, &count.sent.frames),
        field(port::SENT_OCTETS, &count.sent.octets),
    ];
    fields.extend(port::NEVER.map(|(id, _)| field(id, &AtomicU64::new(0))));
    Entity {
        entity: Some(EntityKind::TableEntry(TableEntry {
            table_id: port::COUNTS,
            key: Some(index_key(port::NUMBER, number.into())),
            data: Some(TableData { action_id: 0, fields }),
            ..TableEntry::default()
        })),
    }
}

fn number(entry: &TableEntry) -> Option<u64> {
    entry.key.as_ref()?.fields.iter().find_map(exact)
}
