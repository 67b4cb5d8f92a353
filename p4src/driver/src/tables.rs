//! Requests of the protocol, done to the switch.

use calumma_bfrt::info::number;
use calumma_bfrt::proto::{
    DataField, DataValue, Entity, EntityKind, Exact, KeyField, Lpm, MatchType, Range, SYNC,
    TableData, TableEntry, TableKey, Ternary, Update, UpdateType,
};
use calumma_tna::{
    ControlError, CounterInfo, Entry, EntryInfo, FieldMatch, HashInfo, MirrorSession, RegisterInfo,
    Switch, TableInfo,
};
use tonic::{Code, Status};

use crate::schema::{Object, Schema, action_id, algorithm, field, mirror};

fn refused(error: &ControlError) -> Status {
    let code = match error {
        ControlError::TableFull { .. } => Code::ResourceExhausted,
        ControlError::Exists { .. } => Code::AlreadyExists,
        ControlError::NoEntry { .. } => Code::NotFound,
        ControlError::Name { .. } | ControlError::Invalid { .. } => Code::InvalidArgument,
    };
    Status::new(code, error.to_string())
}

fn invalid(problem: impl Into<String>) -> Status {
    Status::invalid_argument(problem)
}

/// Makes one change.
pub(crate) fn update(schema: &Schema, switch: &mut Switch, update: Update) -> Result<(), Status> {
    let kind = update.r#type();
    match update.entity.and_then(|entity| entity.entity) {
        Some(EntityKind::TableEntry(entry)) => match schema.object(entry.table_id) {
            Some(Object::Table(info)) => change_table(switch, info, kind, &entry),
            Some(Object::Register(info)) => change_register(switch, info, kind, &entry),
            Some(Object::Algorithm(info)) => change_algorithm(switch, info, &entry),
            Some(Object::Mirror) => change_mirror(switch, kind, &entry),
            Some(Object::Ports) => schema.ports.change(kind, entry),
            Some(Object::Counter(info)) => {
                Err(Status::unimplemented(format!("{}: counters can be read only", info.name)))
            }
            Some(Object::PortCounts) => Err(Status::unimplemented("$PORT_STAT can be read only")),
            None => Err(Status::not_found(format!("no table {:#010x}", entry.table_id))),
        },
        // The model has no copy besides the registers themselves.
        Some(EntityKind::TableOperation(operation)) => {
            let known = schema.object(operation.table_id).is_some();
            if known && operation.table_operations_type == SYNC {
                return Ok(());
            }
            Err(Status::unimplemented(format!("operation {}", operation.table_operations_type)))
        }
        None => Err(invalid("an update of nothing")),
    }
}

/// Reads what an entity asks for.
pub(crate) fn read(
    schema: &Schema,
    switch: &Switch,
    entity: Entity,
) -> Result<Vec<Entity>, Status> {
    let Some(EntityKind::TableEntry(entry)) = entity.entity else {
        return Err(Status::unimplemented("only entries can be read"));
    };
    let id = entry.table_id;
    match schema.object(id) {
        Some(Object::Ports) => return schema.ports.read(&entry),
        Some(Object::PortCounts) => return schema.ports.read_counts(&entry),
        _ => {}
    }
    let key = entry.key.filter(|key| !key.fields.is_empty());
    let found = match schema.object(id) {
        Some(Object::Table(info)) => {
            let wanted = match &key {
                Some(key) => Some(match_of(info, key)?),
                None => None,
            };
            let entries = switch.entries(&info.name).map_err(|error| refused(&error))?;
            let found = entries.iter().filter(|entry| {
                wanted.as_ref().is_none_or(|wanted| {
                    info.keys.iter().zip(&entry.keys).all(|(key, there)| {
                        wanted
                            .fields
                            .iter()
                            .any(|(name, field)| *name == key.name && field == there)
                    })
                })
            });
            let mut found: Vec<_> = found.map(|entry| table_entry(id, info, entry)).collect();
            // To a driver, all of a table is what happens on a miss as well.
            if wanted.is_none() {
                let default = switch.default_entry(&info.name).map_err(|error| refused(&error))?;
                let default = table_entry(id, info, &default);
                found.push(TableEntry { key: None, is_default_entry: true, ..default });
            }
            found
        }
        Some(Object::Register(info)) => {
            let lanes = switch.read_register_lanes(&info.name).map_err(|error| refused(&error))?;
            let element = |index: usize| register_entry(id, info, index, &lanes);
            indexes(key.as_ref(), info.size)?.map(element).collect()
        }
        Some(Object::Counter(info)) => {
            let mut found = Vec::new();
            for index in indexes(key.as_ref(), info.size)? {
                found.push(counter_entry(id, info, index, switch)?);
            }
            found
        }
        Some(Object::Mirror) => return Err(Status::unimplemented("reading mirror sessions")),
        Some(Object::Algorithm(info)) => {
            return Err(Status::unimplemented(format!("reading {}.algorithm", info.name)));
        }
        Some(Object::Ports | Object::PortCounts) | None => {
            return Err(Status::not_found(format!("no table {id:#010x}")));
        }
    };
    let wrap = |entry| Entity { entity: Some(EntityKind::TableEntry(entry)) };
    Ok(found.into_iter().map(wrap).collect())
}

/// The match of an entry, by the names of the model.
struct Wanted {
    fields: Vec<(String, FieldMatch)>,
    priority: u32,
}

fn match_of(info: &TableInfo, key: &TableKey) -> Result<Wanted, Status> {
    let mut wanted = Wanted { fields: Vec::new(), priority: 0 };
    let value = |bytes: &[u8]| bytes.iter().fold(0, |value, &byte| value << 8 | u128::from(byte));
    for field in &key.fields {
        if field.field_id == field::MATCH_PRIORITY {
            if let Some(MatchType::Exact(exact)) = &field.match_type {
                wanted.priority = number(&exact.value) as u32;
            }
            continue;
        }
        let at = (field.field_id as usize).checked_sub(1);
        let Some(spec) = at.and_then(|at| info.keys.get(at)) else {
            return Err(invalid(format!("{}: no key field {}", info.name, field.field_id)));
        };
        let field = match &field.match_type {
            Some(MatchType::Exact(Exact { value: bytes })) => FieldMatch::Exact(value(bytes)),
            Some(MatchType::Ternary(Ternary { value: bytes, mask })) => {
                FieldMatch::Ternary { value: value(bytes), mask: value(mask) }
            }
            Some(MatchType::Lpm(Lpm { value: bytes, prefix_len })) => {
                FieldMatch::Lpm { value: value(bytes), length: *prefix_len as u16 }
            }
            Some(MatchType::Range(Range { low, high })) => {
                FieldMatch::Range { low: value(low), high: value(high) }
            }
            None => return Err(invalid(format!("{}: a key field without a match", info.name))),
        };
        wanted.fields.push((spec.name.clone(), field));
    }
    Ok(wanted)
}

/// An action's name, and its data by name.
type Action<'a> = (&'a str, Vec<(&'a str, u128)>);

/// Name and data of the action that an entry runs.
fn action_of<'a>(info: &'a TableInfo, entry: &TableEntry) -> Result<Action<'a>, Status> {
    let Some(data) = &entry.data else {
        return Err(invalid(format!("{}: an entry without an action", info.name)));
    };
    let ids = |(at, _): &(usize, _)| action_id(entry.table_id, *at) == data.action_id;
    let Some((_, action)) = info.actions.iter().enumerate().find(ids) else {
        return Err(invalid(format!("{}: no action {:#010x}", info.name, data.action_id)));
    };
    let mut args = Vec::new();
    for field in &data.fields {
        let at = (field.field_id as usize).checked_sub(1);
        let param = at.and_then(|at| action.params.get(at));
        match (param, &field.value) {
            (Some((name, _)), Some(DataValue::Stream(bytes))) => {
                args.push((&**name, u128::from(number(bytes))));
            }
            _ => return Err(invalid(format!("{}: no data {}", action.name, field.field_id))),
        }
    }
    Ok((&action.name, args))
}

fn change_table(
    switch: &mut Switch,
    info: &TableInfo,
    kind: UpdateType,
    entry: &TableEntry,
) -> Result<(), Status> {
    let refused = |error| refused(&error);
    if entry.is_default_entry {
        let (action, args) = action_of(info, entry)?;
        return switch.set_default_action(&info.name, action, &args).map_err(refused);
    }
    let Some(key) = entry.key.as_ref().filter(|key| !key.fields.is_empty()) else {
        if kind == UpdateType::Delete {
            return switch.clear_table(&info.name).map_err(refused);
        }
        return Err(invalid(format!("{}: an entry without a key", info.name)));
    };
    let wanted = match_of(info, key)?;
    let (action, args) = match kind {
        UpdateType::Delete => ("", Vec::new()),
        _ => action_of(info, entry)?,
    };
    let mut there = Entry::new(action).priority(wanted.priority);
    for (name, field) in &wanted.fields {
        there = there.field(name, *field);
    }
    for (name, value) in args {
        there = there.arg(name, value);
    }
    match kind {
        UpdateType::Insert => switch.add_entry(&info.name, &there).map_err(refused),
        UpdateType::Modify => switch.modify_entry(&info.name, &there).map_err(refused),
        UpdateType::Delete => switch.delete_entry(&info.name, &there).map_err(refused),
        UpdateType::Unspecified => Err(invalid("an update of no kind")),
    }
}

fn change_register(
    switch: &mut Switch,
    info: &RegisterInfo,
    kind: UpdateType,
    entry: &TableEntry,
) -> Result<(), Status> {
    let refused = |error| refused(&error);
    let zeros = vec![0; info.fields.len()];
    let key = entry.key.as_ref().filter(|key| !key.fields.is_empty());
    let (Some(key), false) = (key, kind == UpdateType::Delete) else {
        return switch.fill_register(&info.name, &zeros).map_err(refused);
    };
    let mut values = zeros;
    for field in entry.data.iter().flat_map(|data| &data.fields) {
        let at = (field.field_id as usize).checked_sub(1);
        match (at.and_then(|at| values.get_mut(at)), &field.value) {
            (Some(place), Some(DataValue::Stream(bytes))) => *place = number(bytes) as u32,
            _ => return Err(invalid(format!("{}: no data {}", info.name, field.field_id))),
        }
    }
    for index in indexes(Some(key), info.size)? {
        switch.write_register(&info.name, index, &values).map_err(refused)?;
    }
    Ok(())
}

fn change_algorithm(
    switch: &mut Switch,
    info: &HashInfo,
    entry: &TableEntry,
) -> Result<(), Status> {
    let table = format!("{}.algorithm", info.name);
    let Some(data) = entry.data.as_ref().filter(|_| entry.is_default_entry) else {
        return Err(invalid(format!("{table}: it has a default entry only")));
    };
    if data.action_id != algorithm::USER_DEFINED {
        return Err(invalid(format!("{table}: no action {}", data.action_id)));
    }
    let mut args = Vec::new();
    for field in &data.fields {
        let name = algorithm::FIELDS.iter().find(|(id, ..)| *id == field.field_id);
        let (Some((_, name, kind)), Some(value)) = (name, &field.value) else {
            return Err(invalid(format!("{table}: no data {}", field.field_id)));
        };
        let value = match (value, *kind) {
            (DataValue::Bool(value), "bool") => u128::from(*value),
            (DataValue::Stream(bytes), "uint64") => number(bytes).into(),
            _ => return Err(invalid(format!("{table}: {name} is a {kind}"))),
        };
        args.push((*name, value));
    }
    let set = switch.set_default_action(&table, "user_defined", &args);
    set.map_err(|error| refused(&error))
}

fn change_mirror(switch: &mut Switch, kind: UpdateType, entry: &TableEntry) -> Result<(), Status> {
    let session = entry.key.iter().flat_map(|key| &key.fields).find_map(exact);
    let Some(session) = session else { return Err(invalid("a mirror session without a number")) };
    if kind == UpdateType::Delete {
        switch.set_mirror(session as u16, None);
        return Ok(());
    }
    let fields = || entry.data.iter().flat_map(|data| &data.fields);
    let of = |id: u32| fields().find(|field| field.field_id == id)?.value.as_ref();
    let on = |id| matches!(of(id), Some(DataValue::Bool(true)));
    let count = |id| match of(id) {
        Some(DataValue::Stream(bytes)) => Some(number(bytes)),
        _ => None,
    };
    let port = count(mirror::PORT).filter(|_| on(mirror::PORT_VALID));
    let target = port.filter(|_| on(mirror::ENABLE)).map(|port| MirrorSession {
        port: port as u16,
        max_length: count(mirror::MAX_LENGTH).unwrap_or(u64::from(u16::MAX)) as usize,
    });
    switch.set_mirror(session as u16, target);
    Ok(())
}

pub(crate) fn exact(field: &KeyField) -> Option<u64> {
    match &field.match_type {
        Some(MatchType::Exact(Exact { value })) => Some(number(value)),
        _ => None,
    }
}

/// The index that a key names, or all of them.
fn indexes(key: Option<&TableKey>, size: usize) -> Result<std::ops::Range<usize>, Status> {
    let Some(key) = key else { return Ok(0..size) };
    match key.fields.iter().find_map(exact) {
        Some(index) if (index as usize) < size => Ok(index as usize..index as usize + 1),
        Some(index) => Err(invalid(format!("no element {index} of {size}"))),
        None => Err(invalid("a key without an index")),
    }
}

/// A value as the protocol has it.
fn bytes(value: u128, bits: u16) -> Vec<u8> {
    value.to_be_bytes()[16 - usize::from(bits).div_ceil(8)..].to_vec()
}

fn key_field(field_id: u32, match_type: MatchType) -> KeyField {
    KeyField { field_id, match_type: Some(match_type) }
}

pub(crate) fn stream(field_id: u32, value: u128, bits: u16) -> DataField {
    DataField { field_id, value: Some(DataValue::Stream(bytes(value, bits))) }
}

fn table_entry(table_id: u32, info: &TableInfo, entry: &EntryInfo) -> TableEntry {
    let mut fields = Vec::new();
    for (id, (spec, field)) in (1..).zip(info.keys.iter().zip(&entry.keys)) {
        let bytes = |value| bytes(value, spec.width);
        fields.push(key_field(
            id,
            match *field {
                FieldMatch::Exact(value) => MatchType::Exact(Exact { value: bytes(value) }),
                FieldMatch::Ternary { value, mask } => {
                    MatchType::Ternary(Ternary { value: bytes(value), mask: bytes(mask) })
                }
                FieldMatch::Lpm { value, length } => {
                    MatchType::Lpm(Lpm { value: bytes(value), prefix_len: length.into() })
                }
                FieldMatch::Range { low, high } => {
                    MatchType::Range(Range { low: bytes(low), high: bytes(high) })
                }
            },
        ));
    }
    let bounded =
        |field: &FieldMatch| matches!(field, FieldMatch::Ternary { .. } | FieldMatch::Range { .. });
    if entry.keys.iter().any(bounded) {
        let value = bytes(entry.priority.into(), 32);
        fields.push(key_field(field::MATCH_PRIORITY, MatchType::Exact(Exact { value })));
    }
    let at = info.actions.iter().position(|action| action.name == entry.action);
    let at = at.unwrap_or_default();
    let params = info.actions.get(at).map_or(&[][..], |action| &action.params);
    let args = (1..).zip(entry.args.iter().zip(params));
    TableEntry {
        table_id,
        key: Some(TableKey { fields }),
        data: Some(TableData {
            action_id: action_id(table_id, at),
            fields: args.map(|(id, (value, param))| stream(id, *value, param.1)).collect(),
        }),
        ..TableEntry::default()
    }
}

pub(crate) fn index_key(field_id: u32, index: usize) -> TableKey {
    let value = bytes(index as u128, 32);
    TableKey { fields: vec![key_field(field_id, MatchType::Exact(Exact { value }))] }
}

fn register_entry(
    table_id: u32,
    info: &RegisterInfo,
    index: usize,
    lanes: &[&[u32]],
) -> TableEntry {
    let values = (1..).zip(info.fields.iter().zip(lanes));
    TableEntry {
        table_id,
        key: Some(index_key(field::REGISTER_INDEX, index)),
        data: Some(TableData {
            action_id: 0,
            fields: values
                .map(|(id, ((_, width), lane))| stream(id, lane[index].into(), *width))
                .collect(),
        }),
        ..TableEntry::default()
    }
}

fn counter_entry(
    table_id: u32,
    info: &CounterInfo,
    index: usize,
    switch: &Switch,
) -> Result<TableEntry, Status> {
    let count = switch.read_counter(&info.name, index).map_err(|error| refused(&error))?;
    let fields = vec![
        stream(field::COUNTER_BYTES, count.bytes.into(), 64),
        stream(field::COUNTER_PACKETS, count.packets.into(), 64),
    ];
    Ok(TableEntry {
        table_id,
        key: Some(index_key(field::COUNTER_INDEX, index)),
        data: Some(TableData { action_id: 0, fields }),
        ..TableEntry::default()
    })
}
