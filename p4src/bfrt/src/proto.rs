//! The messages of the protocol: those fields that are used, by their numbers in `bfruntime.proto`.
//! What is left out is skipped by a reader and has its default for the other side.
//!
//! Values of tables travel as big-endian bytes, as many as the field's bits fill.

use prost::{Enumeration, Message, Oneof};

/// The device and pipes that a request is for.
#[derive(Clone, PartialEq, Message)]
pub struct TargetDevice {
    /// The device.
    #[prost(uint32, tag = "1")]
    pub device_id: u32,
    /// The pipe; [`ALL_PIPES`] for all.
    #[prost(uint32, tag = "2")]
    pub pipe_id: u32,
    /// The gress; [`ANY`] for both.
    #[prost(uint32, tag = "3")]
    pub direction: u32,
    /// The parser; [`ANY`] for all.
    #[prost(uint32, tag = "4")]
    pub prsr_id: u32,
}

/// The pipe number that means all pipes.
pub const ALL_PIPES: u32 = 0xFFFF;

/// The gress and parser number that means all of them.
pub const ANY: u32 = 0xFF;

/// Changes of tables, one after the other.
#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    /// Where.
    #[prost(message, optional, tag = "1")]
    pub target: Option<TargetDevice>,
    /// Who.
    #[prost(uint32, tag = "2")]
    pub client_id: u32,
    /// What. An update that fails does not keep the others from being tried.
    #[prost(message, repeated, tag = "3")]
    pub updates: Vec<Update>,
    /// The program.
    #[prost(string, tag = "5")]
    pub p4_name: String,
}

/// The answer to a [`WriteRequest`]; failures come as the status of the call instead.
#[derive(Clone, PartialEq, Message)]
pub struct WriteResponse {
    /// What became of single updates.
    #[prost(message, repeated, tag = "1")]
    pub status: Vec<Error>,
}

/// What is to be read.
#[derive(Clone, PartialEq, Message)]
pub struct ReadRequest {
    /// Where.
    #[prost(message, optional, tag = "1")]
    pub target: Option<TargetDevice>,
    /// Who.
    #[prost(uint32, tag = "2")]
    pub client_id: u32,
    /// Entries, by key; without a key all of a table.
    #[prost(message, repeated, tag = "3")]
    pub entities: Vec<Entity>,
    /// The program.
    #[prost(string, tag = "4")]
    pub p4_name: String,
}

/// A piece of what was read.
#[derive(Clone, PartialEq, Message)]
pub struct ReadResponse {
    /// Entries.
    #[prost(message, repeated, tag = "1")]
    pub entities: Vec<Entity>,
    /// What could not be read.
    #[prost(message, repeated, tag = "2")]
    pub status: Vec<Error>,
}

/// One change.
#[derive(Clone, PartialEq, Message)]
pub struct Update {
    /// Its kind.
    #[prost(enumeration = "UpdateType", tag = "1")]
    pub r#type: i32,
    /// What is changed.
    #[prost(message, optional, tag = "2")]
    pub entity: Option<Entity>,
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum UpdateType {
    /// None; an error.
    Unspecified = 0,
    /// Add an entry.
    Insert = 1,
    /// Change an entry, a register's element, or the default entry.
    Modify = 2,
    /// Delete an entry; without a key all of the table.
    Delete = 4,
}

/// What a request is about.
#[derive(Clone, PartialEq, Message)]
pub struct Entity {
    /// One of these.
    #[prost(oneof = "EntityKind", tags = "1, 4")]
    pub entity: Option<EntityKind>,
}

/// Kinds of entities.
#[derive(Clone, PartialEq, Oneof)]
pub enum EntityKind {
    /// An entry of a table, a register or a counter.
    #[prost(message, tag = "1")]
    TableEntry(TableEntry),
    /// Something done to a whole table.
    #[prost(message, tag = "4")]
    TableOperation(TableOperation),
}

/// An entry.
#[derive(Clone, PartialEq, Message)]
pub struct TableEntry {
    /// The table.
    #[prost(uint32, tag = "1")]
    pub table_id: u32,
    /// What it matches.
    #[prost(message, optional, tag = "2")]
    pub key: Option<TableKey>,
    /// Action and data.
    #[prost(message, optional, tag = "3")]
    pub data: Option<TableData>,
    /// Whether it is what happens on a miss.
    #[prost(bool, tag = "4")]
    pub is_default_entry: bool,
    /// How to read.
    #[prost(message, optional, tag = "9")]
    pub table_flags: Option<TableFlags>,
}

/// How an entry is read.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct TableFlags {
    /// From the hardware instead of the driver's copy.
    #[prost(bool, tag = "1")]
    pub from_hw: bool,
}

/// Something done to a whole table, such as [`SYNC`].
#[derive(Clone, PartialEq, Message)]
pub struct TableOperation {
    /// The table.
    #[prost(uint32, tag = "1")]
    pub table_id: u32,
    /// The operation.
    #[prost(string, tag = "2")]
    pub table_operations_type: String,
}

/// The operation that brings a register's or counter's values from the hardware into the driver's
/// copy.
pub const SYNC: &str = "Sync";

/// Action and data of an entry.
#[derive(Clone, PartialEq, Message)]
pub struct TableData {
    /// The action, 0 where the table has none.
    #[prost(uint32, tag = "1")]
    pub action_id: u32,
    /// The data. A register's field comes once for each pipe.
    #[prost(message, repeated, tag = "2")]
    pub fields: Vec<DataField>,
}

/// A piece of data.
#[derive(Clone, PartialEq, Message)]
pub struct DataField {
    /// The field.
    #[prost(uint32, tag = "1")]
    pub field_id: u32,
    /// Its value.
    #[prost(oneof = "DataValue", tags = "2, 4, 8")]
    pub value: Option<DataValue>,
}

/// A value.
#[derive(Clone, PartialEq, Oneof)]
pub enum DataValue {
    /// A number.
    #[prost(bytes, tag = "2")]
    Stream(Vec<u8>),
    /// A word out of several.
    #[prost(string, tag = "4")]
    Str(String),
    /// Yes or no.
    #[prost(bool, tag = "8")]
    Bool(bool),
}

/// What an entry matches.
#[derive(Clone, PartialEq, Message)]
pub struct TableKey {
    /// Its fields.
    #[prost(message, repeated, tag = "1")]
    pub fields: Vec<KeyField>,
}

/// How one field matches.
#[derive(Clone, PartialEq, Message)]
pub struct KeyField {
    /// The field.
    #[prost(uint32, tag = "1")]
    pub field_id: u32,
    /// The match.
    #[prost(oneof = "MatchType", tags = "2, 3, 4, 5")]
    pub match_type: Option<MatchType>,
}

/// Kinds of matches.
#[derive(Clone, PartialEq, Oneof)]
pub enum MatchType {
    /// Equal.
    #[prost(message, tag = "2")]
    Exact(Exact),
    /// Equal where the mask has ones.
    #[prost(message, tag = "3")]
    Ternary(Ternary),
    /// Equal in the first bits.
    #[prost(message, tag = "4")]
    Lpm(Lpm),
    /// Between two values, both included.
    #[prost(message, tag = "5")]
    Range(Range),
}

/// Equal to a value.
#[derive(Clone, PartialEq, Message)]
pub struct Exact {
    /// The value.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
}

/// Equal to a value where a mask has ones.
#[derive(Clone, PartialEq, Message)]
pub struct Ternary {
    /// The value.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
    /// The mask.
    #[prost(bytes = "vec", tag = "2")]
    pub mask: Vec<u8>,
}

/// Equal to a value in its first bits.
#[derive(Clone, PartialEq, Message)]
pub struct Lpm {
    /// The value.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
    /// How many bits.
    #[prost(int32, tag = "2")]
    pub prefix_len: i32,
}

/// Between two values, both included.
#[derive(Clone, PartialEq, Message)]
pub struct Range {
    /// The lower one.
    #[prost(bytes = "vec", tag = "1")]
    pub low: Vec<u8>,
    /// The higher one.
    #[prost(bytes = "vec", tag = "2")]
    pub high: Vec<u8>,
}

/// What a client says on its stream.
#[derive(Clone, PartialEq, Message)]
pub struct StreamMessageRequest {
    /// Who.
    #[prost(uint32, tag = "1")]
    pub client_id: u32,
    /// One of these.
    #[prost(oneof = "StreamRequest", tags = "2")]
    pub update: Option<StreamRequest>,
}

/// Kinds of messages of a client on its stream.
#[derive(Clone, PartialEq, Oneof)]
pub enum StreamRequest {
    /// The first one.
    #[prost(message, tag = "2")]
    Subscribe(Subscribe),
}

/// What a driver says on a client's stream.
#[derive(Clone, PartialEq, Message)]
pub struct StreamMessageResponse {
    /// One of these.
    #[prost(oneof = "StreamResponse", tags = "1")]
    pub update: Option<StreamResponse>,
}

/// Kinds of messages of a driver on a client's stream.
#[derive(Clone, PartialEq, Oneof)]
pub enum StreamResponse {
    /// Whether the client is known now.
    #[prost(message, tag = "1")]
    Subscribe(Subscribe),
}

/// A client subscribes, and the service answers whether it may.
#[derive(Clone, PartialEq, Message)]
pub struct Subscribe {
    /// The device.
    #[prost(uint32, tag = "2")]
    pub device_id: u32,
    /// What the driver says to it.
    #[prost(message, optional, tag = "4")]
    pub status: Option<Status>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// 0 where all is well.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// What is wrong.
    #[prost(string, tag = "2")]
    pub message: String,
    /// For a write, an [`Error`] for each update up to the last that failed.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    /// The type of the message, behind a `/`.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// What became of one update.
#[derive(Clone, PartialEq, Message)]
pub struct Error {
    /// The code of gRPC, 0 where all is well.
    #[prost(int32, tag = "1")]
    pub canonical_code: i32,
    /// What is wrong.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// Binds a client to a program (action 0, the only one used here).
#[derive(Clone, PartialEq, Message)]
pub struct SetForwardingPipelineConfigRequest {
    /// The device.
    #[prost(uint32, tag = "1")]
    pub device_id: u32,
    /// Who.
    #[prost(uint32, tag = "2")]
    pub client_id: u32,
    /// 0: bind.
    #[prost(int32, tag = "3")]
    pub action: i32,
    /// The program's name, in one of these.
    #[prost(message, repeated, tag = "6")]
    pub config: Vec<ForwardingPipelineConfig>,
}

/// The answer to a [`SetForwardingPipelineConfigRequest`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct SetForwardingPipelineConfigResponse {}

/// Asks for what runs on a device.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct GetForwardingPipelineConfigRequest {
    /// The device.
    #[prost(uint32, tag = "1")]
    pub device_id: u32,
    /// Who.
    #[prost(uint32, tag = "2")]
    pub client_id: u32,
}

/// What runs on a device.
#[derive(Clone, PartialEq, Message)]
pub struct GetForwardingPipelineConfigResponse {
    /// Its programs.
    #[prost(message, repeated, tag = "1")]
    pub config: Vec<ForwardingPipelineConfig>,
    /// Tables that no program declares: ports, mirror sessions, ...
    #[prost(message, optional, tag = "2")]
    pub non_p4_config: Option<NonP4Config>,
}

/// A program.
#[derive(Clone, PartialEq, Message)]
pub struct ForwardingPipelineConfig {
    /// Its name.
    #[prost(string, tag = "1")]
    pub p4_name: String,
    /// Its `bfrt.json`.
    #[prost(bytes = "vec", tag = "2")]
    pub bfruntime_info: Vec<u8>,
}

/// Tables that no program declares.
#[derive(Clone, PartialEq, Message)]
pub struct NonP4Config {
    /// Their description, in the format of `bfrt.json`.
    #[prost(bytes = "vec", tag = "1")]
    pub bfruntime_info: Vec<u8>,
}
