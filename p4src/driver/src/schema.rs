//! The program's `bfrt.json`: every table, register and counter with the numbers that the protocol
//! names them by.

use std::collections::HashMap;
use std::sync::Arc;

use calumma_tna::{
    CounterInfo, CounterKind, HashInfo, MatchKind, Program, RegisterInfo, TableInfo,
};
use serde_json::{Value, json};

use crate::pipe::Counts;
use crate::ports::Ports;

/// Numbers of fields that no program declares, as Tofino's compiler gives them.
pub(crate) mod field {
    pub(crate) const MATCH_PRIORITY: u32 = 65_537;
    pub(crate) const COUNTER_BYTES: u32 = 65_553;
    pub(crate) const COUNTER_PACKETS: u32 = 65_554;
    pub(crate) const COUNTER_INDEX: u32 = 65_556;
    pub(crate) const REGISTER_INDEX: u32 = 65_557;
}

/// What a hash computes, by the driver's numbers.
pub(crate) mod algorithm {
    /// The only action here. The driver has another, for algorithms that have a name.
    pub(crate) const USER_DEFINED: u32 = 2;
    /// The data of this action: its number, its name, and its type.
    pub(crate) const FIELDS: [(u32, &str, &str); 5] = [
        (1, "reverse", "bool"),
        (2, "polynomial", "uint64"),
        (3, "init", "uint64"),
        (4, "final_xor", "uint64"),
        (5, "hash_bit_width", "uint64"),
    ];
}

/// The table of mirror sessions, by the driver's numbers.
pub(crate) mod mirror {
    pub(crate) const TABLE: u32 = 0xFF04_0001;
    pub(crate) const SESSION: u32 = 1;
    pub(crate) const NORMAL: u32 = 2;
    pub(crate) const ENABLE: u32 = 5;
    pub(crate) const DIRECTION: u32 = 6;
    pub(crate) const PORT: u32 = 7;
    pub(crate) const PORT_VALID: u32 = 8;
    pub(crate) const MAX_LENGTH: u32 = 23;
}

/// The tables of ports and of what they count, by the driver's numbers.
pub(crate) mod port {
    pub(crate) const TABLE: u32 = 0xFF01_0001;
    pub(crate) const NUMBER: u32 = 1;
    pub(crate) const SPEED: u32 = 1;
    pub(crate) const FEC: u32 = 2;
    pub(crate) const ENABLE: u32 = 4;
    pub(crate) const AUTO_NEGOTIATION: u32 = 5;
    pub(crate) const UP: u32 = 25;

    /// Words for the same error correction, the one that the driver answers with first.
    pub(crate) const SAME_FEC: [[&str; 2]; 2] =
        [["BF_FEC_TYP_FC", "BF_FEC_TYP_FIRECODE"], ["BF_FEC_TYP_REED_SOLOMON", "BF_FEC_TYP_RS"]];

    pub(crate) const COUNTS: u32 = 0xFF01_0002;
    pub(crate) const RECEIVED_FRAMES: u32 = 1;
    pub(crate) const RECEIVED_OCTETS: u32 = 5;
    pub(crate) const SENT_FRAMES: u32 = 33;
    pub(crate) const SENT_OCTETS: u32 = 36;
    /// What can't happen to the model's ports: received with any error, dropped since a buffer was
    /// full, sent with an error.
    pub(crate) const NEVER: [(u32, &str); 3] = [
        (4, "$FrameswithanyError"),
        (20, "$FramesDroppedBufferFull"),
        (35, "$FramesTransmittedwithError"),
    ];
}

/// What a number stands for.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// A match-action table.
    Table(TableInfo),
    /// A register.
    Register(RegisterInfo),
    /// A counter.
    Counter(CounterInfo),
    /// What a hash computes.
    Algorithm(HashInfo),
    /// The mirror sessions.
    Mirror,
    /// The ports.
    Ports,
    /// What the ports count.
    PortCounts,
}

/// All objects of a program.
#[derive(Debug)]
pub(crate) struct Schema {
    objects: HashMap<u32, Object>,
    /// What the table of ports holds.
    pub(crate) ports: Ports,
    /// The description of the program.
    pub(crate) program: Vec<u8>,
    /// The description of what no program declares.
    pub(crate) fixed: Vec<u8>,
}

/// The number of an action: the place of its table and its own.
pub(crate) fn action_id(table: u32, action: usize) -> u32 {
    0x0100_0000 | (table & 0xFFFF) << 8 | action as u32
}

impl Schema {
    pub(crate) fn new(program: &Program, counts: Arc<Counts>) -> Schema {
        let mut objects = HashMap::from([
            (mirror::TABLE, Object::Mirror),
            (port::TABLE, Object::Ports),
            (port::COUNTS, Object::PortCounts),
        ]);
        let mut tables = Vec::new();
        for (id, info) in (0x0200_0001..).zip(program.tables()) {
            tables.push(table(id, &info));
            objects.insert(id, Object::Table(info));
        }
        for (id, info) in (0x0300_0001..).zip(program.counters()) {
            tables.push(counter(id, &info));
            objects.insert(id, Object::Counter(info));
        }
        for (id, info) in (0x0400_0001..).zip(program.registers()) {
            tables.push(register(id, &info));
            objects.insert(id, Object::Register(info));
        }
        for (id, info) in (0x0500_0001..).zip(program.hashes()) {
            tables.push(algorithm(id, &info));
            objects.insert(id, Object::Algorithm(info));
        }
        let text = |tables: Vec<Value>| {
            let all = json!({
                "schema_version": "1.0.0",
                "tables": tables,
                "learn_filters": [],
            });
            all.to_string().into_bytes()
        };
        let fixed = text(vec![mirror_sessions(), ports(), port_counts()]);
        Schema { objects, ports: Ports::new(counts), program: text(tables), fixed }
    }

    pub(crate) fn object(&self, id: u32) -> Option<&Object> {
        self.objects.get(&id)
    }
}

fn bytes(width: u16) -> Value {
    json!({ "type": "bytes", "width": width })
}

fn key(id: u32, name: &str, match_type: &str, kind: &Value) -> Value {
    json!({
        "id": id, "name": name, "repeated": false, "annotations": [],
        "mandatory": match_type == "Exact", "match_type": match_type, "type": kind,
    })
}

fn singleton(id: u32, name: &str, kind: &Value) -> Value {
    json!({
        "mandatory": false, "read_only": false,
        "singleton": {
            "id": id, "name": name, "repeated": false, "annotations": [], "type": kind,
        },
    })
}

fn object(id: u32, name: &str, kind: &str, size: usize) -> Value {
    json!({
        "name": format!("pipe.{name}"), "id": id, "table_type": kind, "size": size,
        "annotations": [], "depends_on": [], "attributes": [], "supported_operations": [],
    })
}

fn table(id: u32, info: &TableInfo) -> Value {
    let mut keys = Vec::new();
    for (at, field) in (1..).zip(&info.keys) {
        let kind = match field.kind {
            MatchKind::Exact => "Exact",
            MatchKind::Ternary => "Ternary",
            MatchKind::Lpm => "LPM",
            MatchKind::Range => "Range",
        };
        keys.push(key(at, &field.name, kind, &bytes(field.width)));
    }
    let bounded = |kind| matches!(kind, MatchKind::Ternary | MatchKind::Range);
    if info.keys.iter().any(|field| bounded(field.kind)) {
        let kind = json!({ "type": "uint32" });
        keys.push(key(field::MATCH_PRIORITY, "$MATCH_PRIORITY", "Exact", &kind));
    }
    let actions: Vec<Value> = info
        .actions
        .iter()
        .enumerate()
        .map(|(at, action)| {
            let data: Vec<Value> = (1..)
                .zip(&action.params)
                .map(|(at, (name, width))| {
                    json!({
                        "id": at, "name": name, "repeated": false, "mandatory": true,
                        "read_only": false, "annotations": [], "type": bytes(*width),
                    })
                })
                .collect();
            json!({
                "id": action_id(id, at), "name": action.name, "action_scope": "TableAndDefault",
                "annotations": [], "data": data,
            })
        })
        .collect();
    let mut table = object(id, &info.name, "MatchAction_Direct", info.size);
    table["key"] = keys.into();
    table["action_specs"] = actions.into();
    table["data"] = json!([]);
    if info.const_entries {
        table["attributes"] = json!(["ConstTable"]);
    }
    table
}

fn register(id: u32, info: &RegisterInfo) -> Value {
    let mut register = object(id, &info.name, "Register", info.size);
    let index = json!({ "type": "uint32" });
    register["key"] = json!([key(field::REGISTER_INDEX, "$REGISTER_INDEX", "Exact", &index)]);
    let data: Vec<Value> = (1..)
        .zip(&info.fields)
        .map(|(at, (name, width))| {
            let name = if name.is_empty() { "f1" } else { name };
            singleton(at, &format!("{}.{name}", info.name), &bytes(*width))
        })
        .collect();
    register["data"] = data.into();
    register["supported_operations"] = json!(["Sync"]);
    register
}

fn counter(id: u32, info: &CounterInfo) -> Value {
    let mut counter = object(id, &info.name, "Counter", info.size);
    let index = json!({ "type": "uint32" });
    counter["key"] = json!([key(field::COUNTER_INDEX, "$COUNTER_INDEX", "Exact", &index)]);
    let count = json!({ "type": "uint64", "default_value": 0 });
    let mut data = Vec::new();
    if info.kind != CounterKind::Packets {
        data.push(singleton(field::COUNTER_BYTES, "$COUNTER_SPEC_BYTES", &count));
    }
    if info.kind != CounterKind::Bytes {
        data.push(singleton(field::COUNTER_PACKETS, "$COUNTER_SPEC_PKTS", &count));
    }
    counter["data"] = data.into();
    counter["supported_operations"] = json!(["Sync"]);
    counter
}

fn algorithm(id: u32, info: &HashInfo) -> Value {
    let mut table = object(id, &format!("{}.algorithm", info.name), "DynHashAlgorithm", 1);
    table["key"] = json!([]);
    let data = algorithm::FIELDS.map(|(id, name, kind)| {
        json!({
            "id": id, "name": name, "repeated": false, "mandatory": name == "polynomial",
            "read_only": false, "annotations": [], "type": { "type": kind },
        })
    });
    table["action_specs"] = json!([{
        "id": algorithm::USER_DEFINED, "name": "user_defined", "action_scope": "TableAndDefault",
        "annotations": [], "data": data,
    }]);
    table
}

/// A table that no program declares.
fn fixed(id: u32, name: &str, kind: &str, size: usize) -> Value {
    let mut table = object(id, name, kind, size);
    table["name"] = json!(name);
    table
}

/// One word out of several.
fn choice(words: &[&str]) -> Value {
    json!({ "type": "string", "choices": words })
}

fn mirror_sessions() -> Value {
    let kind = |name: &str| json!({ "type": name });
    let mut table = fixed(mirror::TABLE, "$mirror.cfg", "MirrorCfg", 1024);
    table["key"] = json!([key(mirror::SESSION, "$sid", "Exact", &kind("uint16"))]);
    table["action_specs"] = json!([{ "id": mirror::NORMAL, "name": "$normal", "data": [] }]);
    let directions = choice(&["INGRESS", "EGRESS", "BOTH"]);
    table["data"] = json!([
        singleton(mirror::ENABLE, "$session_enable", &kind("bool")),
        singleton(mirror::DIRECTION, "$direction", &directions),
        singleton(mirror::PORT, "$ucast_egress_port", &kind("uint32")),
        singleton(mirror::PORT_VALID, "$ucast_egress_port_valid", &kind("bool")),
        singleton(mirror::MAX_LENGTH, "$max_pkt_len", &kind("uint16")),
    ]);
    table
}

fn ports() -> Value {
    let kind = |name: &str| json!({ "type": name });
    let mut table = fixed(port::TABLE, "$PORT", "PortConfigure", 256);
    table["key"] = json!([key(port::NUMBER, "$DEV_PORT", "Exact", &kind("uint32"))]);
    let speeds = ["1G", "10G", "25G", "40G", "50G", "100G", "200G", "400G"];
    let speeds = speeds.map(|speed| format!("BF_SPEED_{speed}"));
    let same = port::SAME_FEC.into_iter().flatten();
    let fecs: Vec<&str> = ["BF_FEC_TYP_NONE"].into_iter().chain(same).collect();
    let fecs = choice(&fecs);
    let agreeing = choice(&["PM_AN_DEFAULT", "PM_AN_FORCE_ENABLE", "PM_AN_FORCE_DISABLE"]);
    table["data"] = json!([
        singleton(port::SPEED, "$SPEED", &choice(&speeds.each_ref().map(|speed| &**speed))),
        singleton(port::FEC, "$FEC", &fecs),
        singleton(port::ENABLE, "$PORT_ENABLE", &kind("bool")),
        singleton(port::AUTO_NEGOTIATION, "$AUTO_NEGOTIATION", &agreeing),
        singleton(port::UP, "$PORT_UP", &kind("bool")),
    ]);
    table
}

fn port_counts() -> Value {
    let kind = |name: &str| json!({ "type": name });
    let mut table = fixed(port::COUNTS, "$PORT_STAT", "PortStat", 256);
    table["key"] = json!([key(port::NUMBER, "$DEV_PORT", "Exact", &kind("uint32"))]);
    let counted = [
        (port::RECEIVED_FRAMES, "$FramesReceivedOK"),
        (port::RECEIVED_OCTETS, "$OctetsReceivedinGoodFrames"),
        (port::SENT_FRAMES, "$FramesTransmittedOK"),
        (port::SENT_OCTETS, "$OctetsTransmittedwithouterror"),
    ];
    let all = counted.into_iter().chain(port::NEVER);
    table["data"] = all.map(|(id, name)| singleton(id, name, &kind("uint64"))).collect();
    table
}
