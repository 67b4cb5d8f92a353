//! What a table is: columns that say how to read themselves off a report.
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

use crate::report::EpochReport;

/// Times are in UTC.
const TIME_ZONE: &str = "UTC";

/// A line of a table: something in a report, and where it stands there.
pub(super) struct Row<'a, T> {
    pub(super) report: &'a EpochReport,
    /// The edge it is about; empty in tables that are about the whole network.
    pub(super) edge: &'a str,
    pub(super) item: &'a T,
}

/// How a column's value is read off a row, and thereby its type. `None` is NULL.
pub(super) enum Kind<T> {
    Time(for<'a> fn(&Row<'a, T>) -> Option<i64>),
    Truth(for<'a> fn(&Row<'a, T>) -> Option<bool>),
    U8(for<'a> fn(&Row<'a, T>) -> Option<u8>),
    U16(for<'a> fn(&Row<'a, T>) -> Option<u16>),
    U32(for<'a> fn(&Row<'a, T>) -> Option<u32>),
    U64(for<'a> fn(&Row<'a, T>) -> Option<u64>),
    Number(for<'a> fn(&Row<'a, T>) -> Option<f64>),
    Text(for<'a> fn(&Row<'a, T>) -> Option<Cow<'a, str>>),
}

/// A column of a table of `T`.
pub(super) struct Column<T> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind<T>,
}

impl<T> Column<T> {
    fn data_type(&self) -> DataType {
        match self.kind {
            Kind::Time(_) => DataType::Timestamp(TimeUnit::Microsecond, Some(TIME_ZONE.into())),
            Kind::Truth(_) => DataType::Boolean,
            Kind::U8(_) => DataType::UInt8,
            Kind::U16(_) => DataType::UInt16,
            Kind::U32(_) => DataType::UInt32,
            Kind::U64(_) => DataType::UInt64,
            Kind::Number(_) => DataType::Float64,
            Kind::Text(_) => DataType::Utf8,
        }
    }

    fn array(&self, rows: &[Row<'_, T>]) -> ArrayRef {
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
pub trait Table: Sync {
    /// Its name, which is also the folder of its files.
    fn name(&self) -> &'static str;
    /// What one row of it is.
    fn help(&self) -> &'static str;
    /// Its columns, in order.
    fn columns(&self) -> Vec<ColumnInfo>;
    /// Its columns as Arrow has them.
    fn schema(&self) -> SchemaRef;
    /// The rows that `reports` give, in their order.
    ///
    /// # Errors
    /// When Arrow refuses them; it has no reason to.
    fn batch(&self, reports: &[&EpochReport]) -> Result<RecordBatch, ArrowError>;
}

/// A table of `T`s.
pub(super) struct TableOf<T: 'static> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) columns: &'static [Column<T>],
    /// Appends the rows of a report.
    pub(super) rows: for<'a> fn(&'a EpochReport, &mut Vec<Row<'a, T>>),
}

impl<T> Table for TableOf<T> {
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
                Kind::Truth(_) => "BOOLEAN",
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

    fn batch(&self, reports: &[&EpochReport]) -> Result<RecordBatch, ArrowError> {
        let mut rows = Vec::new();
        for report in reports {
            (self.rows)(report, &mut rows);
        }
        let arrays = self.columns.iter().map(|column| column.array(&rows)).collect();
        RecordBatch::try_new(self.schema(), arrays)
    }
}
