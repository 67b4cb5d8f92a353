//! Tables of the archive: columns that say how to read themselves off a report.
//!
//! Each column is typed by the function that reads it, so that a table's schema and its rows can't
//! come apart.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::flow::Flow;
use crate::report::{EpochHead, Report};

/// Times are in UTC.
const TIME_ZONE: &str = "UTC";

/// A line of a table: something in a report, and where it stands there.
#[derive(Debug)]
pub struct Row<'a, T> {
    /// The report's epoch.
    pub head: EpochHead,
    /// The node it is about; empty in tables that are about the whole network.
    pub node: &'a str,
    /// What it is about.
    pub item: &'a T,
}

impl<'a, T> Row<'a, T> {
    /// The rows of all `items` of a report on that epoch, each about the node that `node` names.
    pub fn of_nodes(
        head: EpochHead,
        items: impl IntoIterator<Item = &'a T>,
        node: impl Fn(&'a T) -> &'a str,
    ) -> impl Iterator<Item = Self> {
        items.into_iter().map(move |item| Self { head, node: node(item), item })
    }
}

/// How a column's value is read off a row, and thereby its type. `None` is NULL.
#[derive(Debug)]
pub enum Kind<T> {
    /// A time, in microseconds since the Unix epoch.
    Time(for<'a> fn(&Row<'a, T>) -> Option<i64>),
    /// Yes or no.
    Truth(for<'a> fn(&Row<'a, T>) -> Option<bool>),
    /// A number of 8 bits.
    U8(for<'a> fn(&Row<'a, T>) -> Option<u8>),
    /// A number of 16 bits.
    U16(for<'a> fn(&Row<'a, T>) -> Option<u16>),
    /// A number of 32 bits.
    U32(for<'a> fn(&Row<'a, T>) -> Option<u32>),
    /// A number of 64 bits.
    U64(for<'a> fn(&Row<'a, T>) -> Option<u64>),
    /// A number that need not be whole.
    Number(for<'a> fn(&Row<'a, T>) -> Option<f64>),
    /// Text.
    Text(for<'a> fn(&Row<'a, T>) -> Option<Cow<'a, str>>),
    /// Whether the report that the row is of is complete.
    Complete,
}

/// A column of a table of `T`.
#[derive(Debug)]
pub struct Column<T> {
    /// Its name.
    pub name: &'static str,
    /// What it holds, and in which unit.
    pub help: &'static str,
    /// How it is read, and its type.
    pub kind: Kind<T>,
}

impl<T> Column<T> {
    fn data_type(&self) -> DataType {
        match self.kind {
            Kind::Time(_) => DataType::Timestamp(TimeUnit::Microsecond, Some(TIME_ZONE.into())),
            Kind::Truth(_) | Kind::Complete => DataType::Boolean,
            Kind::U8(_) => DataType::UInt8,
            Kind::U16(_) => DataType::UInt16,
            Kind::U32(_) => DataType::UInt32,
            Kind::U64(_) => DataType::UInt64,
            Kind::Number(_) => DataType::Float64,
            Kind::Text(_) => DataType::Utf8,
        }
    }

    /// `complete` says of each row whether its report is.
    fn array(&self, rows: &[Row<'_, T>], complete: &[bool]) -> ArrayRef {
        match self.kind {
            Kind::Time(read) => {
                let times = TimestampMicrosecondArray::from_iter(rows.iter().map(read));
                Arc::new(times.with_timezone(TIME_ZONE))
            }
            Kind::Truth(read) => Arc::new(BooleanArray::from_iter(rows.iter().map(read))),
            Kind::U8(read) => Arc::new(UInt8Array::from_iter(rows.iter().map(read))),
            Kind::U16(read) => Arc::new(UInt16Array::from_iter(rows.iter().map(read))),
            Kind::U32(read) => Arc::new(UInt32Array::from_iter(rows.iter().map(read))),
            Kind::U64(read) => Arc::new(UInt64Array::from_iter(rows.iter().map(read))),
            Kind::Number(read) => Arc::new(Float64Array::from_iter(rows.iter().map(read))),
            Kind::Text(read) => Arc::new(StringArray::from_iter(rows.iter().map(read))),
            Kind::Complete => Arc::new(BooleanArray::from(complete.to_vec())),
        }
    }
}

/// A column as the documentation and `calumma-query` list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// Its name.
    pub name: &'static str,
    /// Its type in SQL's words.
    pub sql_type: &'static str,
    /// What it holds, and in which unit.
    pub help: &'static str,
}

/// A table of the archive.
pub trait Table: std::fmt::Debug + Sync {
    /// Its name, which is also the folder of its files.
    fn name(&self) -> &'static str;
    /// What one row of it is.
    fn help(&self) -> &'static str;
    /// Its columns, in order.
    fn columns(&self) -> Vec<ColumnInfo>;
    /// Its columns as Arrow has them.
    fn schema(&self) -> SchemaRef;
    /// The rows that `reports` give, in their order; other systems' give none.
    ///
    /// # Errors
    /// When Arrow refuses them; it has no reason to.
    fn batch(&self, reports: &[&dyn Report]) -> Result<RecordBatch, ArrowError>;
}

/// A table of `T`s that reports of type `R` hold.
#[derive(Debug)]
pub struct TableOf<R: 'static, T: 'static> {
    /// Its name: of a further system, `<system>_...`.
    pub name: &'static str,
    /// What one row of it is.
    pub help: &'static str,
    /// Its columns, in order.
    pub columns: &'static [Column<T>],
    /// Appends the rows of a report.
    pub rows: for<'a> fn(&'a R, &mut Vec<Row<'a, T>>),
}

impl<R: Report, T: std::fmt::Debug> Table for TableOf<R, T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        let info = |column: &Column<T>| ColumnInfo {
            name: column.name,
            sql_type: match column.kind {
                Kind::Time(_) => "TIMESTAMP",
                Kind::Truth(_) | Kind::Complete => "BOOLEAN",
                Kind::U8(_) | Kind::U16(_) | Kind::U32(_) => "INTEGER",
                Kind::U64(_) => "BIGINT",
                Kind::Number(_) => "DOUBLE",
                Kind::Text(_) => "VARCHAR",
            },
            help: column.help,
        };
        self.columns.iter().map(info).collect()
    }

    fn schema(&self) -> SchemaRef {
        let field = |column: &Column<T>| Field::new(column.name, column.data_type(), true);
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    fn batch(&self, reports: &[&dyn Report]) -> Result<RecordBatch, ArrowError> {
        let (mut rows, mut complete) = (Vec::new(), Vec::new());
        for report in reports.iter().filter_map(|report| report.as_type::<R>()) {
            (self.rows)(report, &mut rows);
            complete.resize(rows.len(), report.is_complete());
        }
        let arrays = self.columns.iter().map(|column| column.array(&rows, &complete)).collect();
        RecordBatch::try_new(self.schema(), arrays)
    }
}

/// What is about one flow.
pub trait OfFlow {
    /// The flow.
    fn flow(&self) -> &Flow;
}

/// Implements [`OfFlow`] for types with the field `flow`.
#[macro_export]
macro_rules! of_flow {
    ($($item:ty),+ $(,)?) => {
        $(impl $crate::table::OfFlow for $item {
            fn flow(&self) -> &$crate::Flow {
                &self.flow
            }
        })+
    };
}

/// The number of the epoch.
pub const fn epoch<T>() -> Column<T> {
    u64("epoch", "number of the epoch", |row| Some(row.head.epoch))
}

/// When the epoch began.
pub const fn start<T>() -> Column<T> {
    let kind = Kind::Time(|row| i64::try_from(row.head.start_unix_ns / 1000).ok());
    Column { name: "start", help: "when it began, in UTC", kind }
}

/// Whether the report is complete. One table of each system has this column
/// ([`System::reports`](crate::System::reports)).
pub const fn complete<T>() -> Column<T> {
    Column { name: "complete", help: "whether the report is complete", kind: Kind::Complete }
}

/// The name of the edge.
pub const fn edge<T>() -> Column<T> {
    text("edge", "name of the edge", |row| Some(row.node.into()))
}

/// The flow's source address.
pub const fn src<T: OfFlow>() -> Column<T> {
    text("src", "source address", |row| Some(row.item.flow().src.to_string().into()))
}

/// The flow's destination address.
pub const fn dst<T: OfFlow>() -> Column<T> {
    text("dst", "destination address", |row| Some(row.item.flow().dst.to_string().into()))
}

/// The flow's source port.
pub const fn sport<T: OfFlow>() -> Column<T> {
    u16("sport", "source port, 0 where there is none", |row| Some(row.item.flow().sport))
}

/// The flow's destination port.
pub const fn dport<T: OfFlow>() -> Column<T> {
    u16("dport", "destination port, 0 where there is none", |row| Some(row.item.flow().dport))
}

/// The flow's IP protocol number.
pub const fn proto<T: OfFlow>() -> Column<T> {
    u8("proto", "IP protocol number: 6 is TCP, 17 UDP", |row| Some(row.item.flow().proto))
}

macro_rules! column_of {
    ($($name:ident: $kind:ident of $value:ty),+ $(,)?) => {
        $(/// A column of this type.
        pub const fn $name<T>(
            name: &'static str,
            help: &'static str,
            read: for<'a> fn(&Row<'a, T>) -> Option<$value>,
        ) -> Column<T> {
            Column { name, help, kind: Kind::$kind(read) }
        })+
    };
}
column_of!(truth: Truth of bool, u8: U8 of u8, u16: U16 of u16, u32: U32 of u32, u64: U64 of u64, number: Number of f64);

/// A column of text.
pub const fn text<T>(
    name: &'static str,
    help: &'static str,
    read: for<'a> fn(&Row<'a, T>) -> Option<Cow<'a, str>>,
) -> Column<T> {
    Column { name, help, kind: Kind::Text(read) }
}
