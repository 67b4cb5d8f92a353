//! Names and numbers: what a program's `bfrt.json` says, and entries made from names by it.
//!
//! A name is a full one (`pipe.Ingress.host_ports`) or any unambiguous end of it (`host_ports`).

use serde::Deserialize;

use crate::proto::{
    DataField, DataValue, Entity, EntityKind, Exact, KeyField, Lpm, MatchType, Range, TableData,
    TableEntry, TableKey, TableOperation, Ternary,
};

/// How one field of an entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Match {
    /// Equal.
    Exact(u64),
    /// Equal where the mask has ones: value, mask.
    Ternary(u64, u64),
    /// Equal in the first bits: value, number of bits.
    Lpm(u64, u16),
    /// Between the two, both included.
    Range(u64, u64),
}

/// A piece of data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number; where the field is a yes or no, 1 or 0.
    Number(u64),
    /// Yes or no.
    Bool(bool),
    /// A word out of several.
    Word(String),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// Why an entry can't be named to the driver.
#[derive(Debug, thiserror::Error)]
pub enum InfoError {
    /// The description can't be read.
    #[error("the driver's description of the program can't be read: {0}")]
    Json(#[from] serde_json::Error),
    /// No such name, or several.
    #[error("{kind} `{name}` of {place}: {problem}")]
    Name {
        /// Table, key field, action, ...
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// Where.
        place: String,
        /// None, or which ones.
        problem: String,
    },
    /// A value that the field can't hold.
    #[error("{field} of {table}: {problem}")]
    Value {
        /// The table.
        table: String,
        /// The field.
        field: String,
        /// What is wrong.
        problem: String,
    },
}

/// All that can be controlled.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Info {
    tables: Vec<Table>,
}

/// A table, register or counter.
#[derive(Clone, Debug, Deserialize)]
pub struct Table {
    /// Its full name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// `MatchAction_Direct`, `Register`, `Counter`, ...
    pub table_type: String,
    /// How many entries it holds.
    pub size: u64,
    #[serde(default)]
    key: Vec<Field>,
    #[serde(default)]
    action_specs: Vec<Action>,
    #[serde(default)]
    data: Vec<Datum>,
}

#[derive(Clone, Debug, Deserialize)]
struct Action {
    id: u32,
    name: String,
    #[serde(default)]
    data: Vec<Datum>,
}

/// Data fields of programs' actions stand for themselves, others in an envelope.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Datum {
    Singleton { singleton: Field },
    OneOf { oneof: Vec<Field> },
    Plain(Field),
}

impl Datum {
    fn fields(&self) -> &[Field] {
        match self {
            Self::Singleton { singleton: field } | Self::Plain(field) => {
                std::slice::from_ref(field)
            }
            Self::OneOf { oneof } => oneof,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Field {
    id: u32,
    name: String,
    /// What is made of several fields has none, but a `container`: in tables that are of no use
    /// here.
    #[serde(default)]
    r#type: Type,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Type {
    r#type: String,
    #[serde(default)]
    width: u32,
    /// The words that there are; none where any will do.
    #[serde(default)]
    choices: Vec<String>,
}

impl Field {
    /// Bits of its values.
    fn bits(&self) -> u32 {
        match &*self.r#type.r#type {
            "uint8" => 8,
            "uint16" => 16,
            "uint32" => 32,
            "uint64" => 64,
            _ => self.r#type.width,
        }
    }

    fn refused(&self, table: &str, problem: String) -> InfoError {
        InfoError::Value { table: table.to_owned(), field: self.name.clone(), problem }
    }

    /// A number as the protocol has it: big-endian, as many bytes as the bits fill.
    fn bytes(&self, table: &str, value: u64) -> Result<Vec<u8>, InfoError> {
        let bits = self.bits();
        if bits < 64 && value >> bits != 0 {
            return Err(self.refused(table, format!("{value} does not fit in {bits} bits")));
        }
        let length = bits.div_ceil(8) as usize;
        let all = value.to_be_bytes();
        let mut bytes = vec![0; length.saturating_sub(all.len())];
        bytes.extend_from_slice(&all[all.len().saturating_sub(length)..]);
        Ok(bytes)
    }

    fn data(&self, table: &str, value: &Value) -> Result<DataField, InfoError> {
        let value = match value {
            Value::Number(number @ 0..=1) if self.r#type.r#type == "bool" => {
                DataValue::Bool(*number == 1)
            }
            Value::Number(number) => DataValue::Stream(self.bytes(table, *number)?),
            Value::Bool(value) => DataValue::Bool(*value),
            Value::Word(word) => {
                let choices = &self.r#type.choices;
                if !choices.is_empty() && !choices.contains(word) {
                    let all = choices.join(", ");
                    return Err(self.refused(table, format!("{word} is not one of {all}")));
                }
                DataValue::Str(word.clone())
            }
        };
        Ok(DataField { field_id: self.id, value: Some(value) })
    }

    fn matches(&self, table: &str, field: Match) -> Result<KeyField, InfoError> {
        let bytes = |value| self.bytes(table, value);
        let match_type = match field {
            Match::Exact(value) => MatchType::Exact(Exact { value: bytes(value)? }),
            Match::Ternary(value, mask) => {
                MatchType::Ternary(Ternary { value: bytes(value)?, mask: bytes(mask)? })
            }
            Match::Lpm(value, length) => {
                MatchType::Lpm(Lpm { value: bytes(value)?, prefix_len: length.into() })
            }
            Match::Range(low, high) => {
                MatchType::Range(Range { low: bytes(low)?, high: bytes(high)? })
            }
        };
        Ok(KeyField { field_id: self.id, match_type: Some(match_type) })
    }
}

/// The number that bytes of the protocol stand for, as far as 64 bits hold it.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl Info {
    /// Reads descriptions: that of a program and that of what no program declares.
    ///
    /// # Errors
    /// When one is no `bfrt.json`.
    pub fn from_json(descriptions: &[&[u8]]) -> Result<Info, InfoError> {
        let mut all = Info::default();
        for description in descriptions.iter().filter(|text| !text.is_empty()) {
            let info: Info = serde_json::from_slice(description)?;
            all.tables.extend(info.tables);
        }
        Ok(all)
    }

    /// The table, register or counter of that name.
    ///
    /// # Errors
    /// There is none, or several.
    pub fn table(&self, name: &str) -> Result<&Table, InfoError> {
        find("table", name, "the program", &self.tables, |table| &table.name)
    }

    /// All tables, registers and counters.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The table of that number.
    pub fn table_by_id(&self, id: u32) -> Option<&Table> {
        self.tables.iter().find(|table| table.id == id)
    }
}

impl Table {
    /// What an entry matches. Where entries have a priority, this one has the highest.
    ///
    /// # Errors
    /// A name that the table does not have, a value that does not fit.
    pub fn key(&self, fields: &[(&str, Match)]) -> Result<TableKey, InfoError> {
        let mut key = Vec::new();
        for &(name, field) in fields {
            let spec = find("key field", name, &self.name, &self.key, |field| &field.name)?;
            key.push(spec.matches(&self.name, field)?);
        }
        let priority = self.key.iter().find(|field| field.name == "$MATCH_PRIORITY");
        if let Some(priority) = priority.filter(|_| !fields.is_empty()) {
            key.push(priority.matches(&self.name, Match::Exact(0))?);
        }
        Ok(TableKey { fields: key })
    }

    /// An action and its data; without an action, the data of a register or of a table that has
    /// none.
    ///
    /// # Errors
    /// A name that the table does not have, a value that does not fit.
    pub fn data(
        &self,
        action: Option<&str>,
        values: &[(&str, Value)],
    ) -> Result<TableData, InfoError> {
        let action = match action {
            None => None,
            Some(name) => {
                Some(find("action", name, &self.name, &self.action_specs, |action| &action.name)?)
            }
        };
        let fields: Vec<&Field> = action
            .iter()
            .flat_map(|action| &action.data)
            .chain(&self.data)
            .flat_map(Datum::fields)
            .collect();
        let mut data = Vec::new();
        for (name, value) in values {
            let spec = find("data field", name, &self.name, &fields, |field| &field.name)?;
            data.push(spec.data(&self.name, value)?);
        }
        Ok(TableData { action_id: action.map_or(0, |action| action.id), fields: data })
    }

    /// A value that an entry has, by its name; none where the entry or the table lacks it.
    pub fn value(&self, entry: &TableEntry, name: &str) -> Option<Value> {
        let field = self.data.iter().flat_map(Datum::fields).find(|field| field.name == name)?;
        let data = entry.data.as_ref()?;
        let datum = data.fields.iter().find(|datum| datum.field_id == field.id)?;
        match datum.value.as_ref()? {
            DataValue::Stream(bytes) => Some(Value::Number(number(bytes))),
            DataValue::Bool(value) => Some(Value::Bool(*value)),
            DataValue::Str(word) => Some(Value::Word(word.clone())),
        }
    }

    /// An entry.
    pub fn entry(&self, key: Option<TableKey>, data: Option<TableData>) -> Entity {
        let entry = TableEntry { table_id: self.id, key, data, ..TableEntry::default() };
        Entity { entity: Some(EntityKind::TableEntry(entry)) }
    }

    /// What happens on a miss.
    pub fn default_entry(&self, data: TableData) -> Entity {
        let entry = TableEntry {
            table_id: self.id,
            data: Some(data),
            is_default_entry: true,
            ..TableEntry::default()
        };
        Entity { entity: Some(EntityKind::TableEntry(entry)) }
    }

    /// Something done to the whole table.
    pub fn operation(&self, operation: &str) -> Entity {
        let operation =
            TableOperation { table_id: self.id, table_operations_type: operation.to_owned() };
        Entity { entity: Some(EntityKind::TableOperation(operation)) }
    }

    /// The data of a register's element whose values are all zero.
    ///
    /// # Errors
    /// Never for a register.
    pub fn zeros(&self) -> Result<TableData, InfoError> {
        let fields = self.data.iter().flat_map(Datum::fields);
        let zeros = fields.map(|field| field.data(&self.name, &Value::Number(0)));
        Ok(TableData { action_id: 0, fields: zeros.collect::<Result<_, _>>()? })
    }

    /// A register's element or counter's cell, by its index.
    ///
    /// # Errors
    /// When the table has no index.
    pub fn index_key(&self, index: u64) -> Result<TableKey, InfoError> {
        self.key(&[(self.index_name(), Match::Exact(index))])
    }

    fn index_name(&self) -> &'static str {
        if self.table_type == "Counter" { "$COUNTER_INDEX" } else { "$REGISTER_INDEX" }
    }

    /// The index of an element that was read, and its values in order: of each field the sum over
    /// all pipes that have it.
    pub fn element(&self, entry: &TableEntry) -> Option<(u64, Vec<u64>)> {
        let key = entry.key.as_ref()?.fields.first()?;
        let Some(MatchType::Exact(Exact { value })) = &key.match_type else { return None };
        let data = entry.data.as_ref()?;
        let lane = |field: &Field| -> u64 {
            let of_pipes = data.fields.iter().filter(|datum| datum.field_id == field.id);
            let values = of_pipes.map(|datum| match &datum.value {
                Some(DataValue::Stream(bytes)) => number(bytes),
                _ => 0,
            });
            values.sum()
        };
        Some((number(value), self.data.iter().flat_map(Datum::fields).map(lane).collect()))
    }
}

/// The only item that is called so, or whose name ends so behind a dot.
fn find<'a, T>(
    kind: &'static str,
    wanted: &str,
    place: &str,
    items: &'a [T],
    name: impl Fn(&T) -> &str,
) -> Result<&'a T, InfoError> {
    if let Some(item) = items.iter().find(|item| name(item) == wanted) {
        return Ok(item);
    }
    let ends =
        |item: &&T| name(item).strip_suffix(wanted).is_some_and(|before| before.ends_with('.'));
    let mut found = items.iter().filter(ends);
    match (found.next(), found.next()) {
        (Some(item), None) => Ok(item),
        (first, _) => {
            let problem = match first {
                None => "there is none",
                Some(_) => "there are several of that name",
            };
            Err(InfoError::Name {
                kind,
                name: wanted.to_owned(),
                place: place.to_owned(),
                problem: problem.to_owned(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = r#"{"tables": [
        {"name": "pipe.Ingress.hierarchy.thresholds", "id": 7, "table_type": "MatchAction_Direct",
         "size": 4,
         "key": [{"id": 1, "name": "timestamp", "type": {"type": "bytes", "width": 1}},
                 {"id": 2, "name": "size", "type": {"type": "bytes", "width": 16}},
                 {"id": 65537, "name": "$MATCH_PRIORITY", "type": {"type": "uint32"}}],
         "action_specs": [{"id": 9, "name": "Ingress.hierarchy.candidate",
             "data": [{"id": 1, "name": "value", "type": {"type": "bytes", "width": 2}}]}]},
        {"name": "pipe.Ingress.sums", "id": 8, "table_type": "Register", "size": 2,
         "key": [{"id": 65557, "name": "$REGISTER_INDEX", "type": {"type": "uint32"}}],
         "data": [{"singleton": {"id": 1, "name": "Ingress.sums.f1",
                                 "type": {"type": "bytes", "width": 32}}}]},
        {"name": "pipe.Ingress.hash.configure", "id": 11, "table_type": "DynHashConfigure", "size": 1,
         "key": [],
         "data": [{"mandatory": false, "singleton": {"id": 1, "name": "src", "repeated": true,
             "container": [{"singleton": {"id": 65584, "name": "start_bit",
                                          "type": {"type": "uint64"}}}]}}]},
        {"name": "$PORT", "id": 12, "table_type": "PortConfigure", "size": 256,
         "key": [{"id": 1, "name": "$DEV_PORT", "type": {"type": "uint32"}}],
         "data": [{"singleton": {"id": 1, "name": "$SPEED",
             "type": {"type": "string", "choices": ["BF_SPEED_10G", "BF_SPEED_100G"]}}}]},
        {"name": "pipe.Egress.sums", "id": 10, "table_type": "Register", "size": 2}
    ]}"#;

    fn info() -> Info {
        Info::from_json(&[PROGRAM.as_bytes(), b""]).unwrap()
    }

    #[test]
    fn an_entry_by_names_becomes_one_by_numbers() {
        let info = info();
        let table = info.table("hierarchy.thresholds").unwrap();
        let fields = [("timestamp", Match::Exact(1)), ("size", Match::Range(3, 0x1FF))];
        let key = table.key(&fields).unwrap();
        let range = Range { low: vec![0, 3], high: vec![1, 0xFF] };
        assert_eq!(key.fields[1].match_type, Some(MatchType::Range(range)));
        assert_eq!(key.fields[2].field_id, 65537, "the table asks for a priority");
        let data = table.data(Some("candidate"), &[("value", 2.into())]).unwrap();
        assert_eq!((data.action_id, data.fields[0].field_id), (9, 1));
    }

    #[test]
    fn what_the_program_does_not_have_is_named() {
        let info = info();
        let problem = |error: InfoError| error.to_string();
        assert!(problem(info.table("thresh").unwrap_err()).contains("`thresh`"));
        assert!(problem(info.table("sums").unwrap_err()).contains("several"));
        let table = info.table("thresholds").unwrap();
        let error = table.key(&[("size", Match::Exact(0x1_0000))]).unwrap_err();
        assert!(problem(error).contains("65536 does not fit in 16 bits"));
        assert!(problem(table.data(Some("drop"), &[]).unwrap_err()).contains("action `drop`"));
    }

    #[test]
    fn a_word_is_one_of_those_that_there_are() {
        let info = info();
        let ports = info.table("$PORT").unwrap();
        let speed = |word: &str| ports.data(None, &[("$SPEED", Value::Word(word.to_owned()))]);
        assert!(speed("BF_SPEED_10G").is_ok());
        let error = speed("BF_SPEED_7G").unwrap_err().to_string();
        assert!(error.contains("BF_SPEED_7G is not one of BF_SPEED_10G, BF_SPEED_100G"), "{error}");
    }

    #[test]
    fn a_registers_element_is_the_sum_over_the_pipes() {
        let info = info();
        let register = info.table("Ingress.sums").unwrap();
        let of_pipe = |value: u8| DataField {
            field_id: 1,
            value: Some(DataValue::Stream(vec![0, 0, 1, value])),
        };
        let entry = TableEntry {
            key: Some(register.index_key(1).unwrap()),
            data: Some(TableData { action_id: 0, fields: vec![of_pipe(2), of_pipe(3)] }),
            ..TableEntry::default()
        };
        assert_eq!(register.element(&entry), Some((1, vec![0x205])));
    }
}
