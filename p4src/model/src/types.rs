//! The types of a program and where their parts lie.
//!
//! A value lives in consecutive *slots* of the frame, one for each scalar: a struct is its fields
//! one after the other, a header is its validity and then its fields, a header stack is the index
//! of its next free element and then its elements.

use std::fmt;
use std::rc::Rc;

/// Widest scalar the model computes with.
pub(crate) const MAX_WIDTH: u16 = 128;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Type {
    Bool,
    Bit(u16),
    Int(u16),
    /// `int`: a constant of no fixed width.
    AnyInt,
    Error,
    Text,
    Void,
    Enum(Rc<EnumDef>),
    Header(Rc<Fields>),
    Struct(Rc<Fields>),
    Stack(Rc<Fields>, u32),
    Tuple(Rc<[Type]>),
}

/// An enum; each member has a value.
#[derive(Debug, PartialEq)]
pub(crate) struct EnumDef {
    pub(crate) name: Rc<str>,
    /// Width of its representation if it has one; only then it can be cast.
    pub(crate) width: Option<u16>,
    pub(crate) members: Vec<(Rc<str>, u128)>,
}

/// The fields of a header or struct.
#[derive(Debug, PartialEq)]
pub(crate) struct Fields {
    pub(crate) name: Rc<str>,
    pub(crate) fields: Vec<FieldDef>,
    /// Slots of the whole, validity included.
    pub(crate) slots: u32,
}

#[derive(Debug, PartialEq)]
pub(crate) struct FieldDef {
    pub(crate) name: Rc<str>,
    pub(crate) ty: Type,
    /// First slot, counted from the first of the whole.
    pub(crate) offset: u32,
}

impl Fields {
    /// Lays out the fields; `first` slots come before them.
    pub(crate) fn new(name: Rc<str>, fields: Vec<(Rc<str>, Type)>, first: u32) -> Fields {
        let mut slots = first;
        let fields = fields
            .into_iter()
            .map(|(name, ty)| {
                let offset = slots;
                slots += ty.slots();
                FieldDef { name, ty, offset }
            })
            .collect();
        Fields { name, fields, slots }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&FieldDef> {
        self.fields.iter().find(|f| &*f.name == name)
    }
}

impl Type {
    /// How many slots a value takes.
    pub(crate) fn slots(&self) -> u32 {
        match self {
            Type::Void | Type::Text => 0,
            Type::Header(fields) | Type::Struct(fields) => fields.slots,
            Type::Stack(element, count) => 1 + element.slots * count,
            Type::Tuple(items) => items.iter().map(Type::slots).sum(),
            _ => 1,
        }
    }

    /// Bits of a scalar, as keys, hashes and packets see it.
    pub(crate) fn width(&self) -> Option<u16> {
        match self {
            Type::Bool => Some(1),
            Type::Bit(width) | Type::Int(width) => Some(*width),
            Type::Error => Some(8),
            Type::Enum(def) => Some(def.width.unwrap_or(32)),
            _ => None,
        }
    }

    pub(crate) fn is_scalar(&self) -> bool {
        self.width().is_some() || *self == Type::AnyInt
    }

    pub(crate) fn is_signed(&self) -> bool {
        matches!(self, Type::Int(_) | Type::AnyInt)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Bool => write!(f, "bool"),
            Type::Bit(width) => write!(f, "bit<{width}>"),
            Type::Int(width) => write!(f, "int<{width}>"),
            Type::AnyInt => write!(f, "int"),
            Type::Error => write!(f, "error"),
            Type::Text => write!(f, "string"),
            Type::Void => write!(f, "void"),
            Type::Enum(def) => write!(f, "enum {}", def.name),
            Type::Header(fields) => write!(f, "header {}", fields.name),
            Type::Struct(fields) => write!(f, "struct {}", fields.name),
            Type::Stack(element, count) => write!(f, "{}[{count}]", element.name),
            Type::Tuple(items) => {
                write!(f, "tuple<")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index > 0 { ", " } else { "" })?;
                }
                write!(f, ">")
            }
        }
    }
}

/// The low `width` bits set.
pub(crate) const fn mask(width: u16) -> u128 {
    match width {
        0 => 0,
        1..=127 => (1 << width) - 1,
        _ => u128::MAX,
    }
}

/// The first `length` of `width` bits set.
pub(crate) const fn prefix_mask(width: u16, length: u16) -> u128 {
    mask(width) & !mask(width - length)
}

/// The value of `width` bits in two's complement.
pub(crate) const fn signed(value: u128, width: u16) -> i128 {
    let shift = 128 - width as u32;
    (value << shift) as i128 >> shift
}
