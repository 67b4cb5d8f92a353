//! Reads TOML into any type that serde can read, and goes on after a mistake.
//!
//! serde gives up at the first mistake. Here the mistake is noted, the place is mended and the
//! whole is read again: a key that nobody knows is passed over, and what is missing or of the wrong
//! kind is replaced by a stand-in that fits (nothing, zero, the first choice). At the end either
//! nothing was wrong, or all mistakes are known. Only for files that a person writes: each mistake
//! costs another reading.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::DeValue;

use super::mistakes::{Mistakes, child, element};

/// Mistakes after which the rest of the file is left alone.
const MOST_MISTAKES: usize = 100;

/// How a place is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    /// As if it were not there.
    PassOver,
    /// Something that fits is put there.
    StandIn,
}

type Repairs = BTreeMap<String, Repair>;

/// Reads `root` as a `T` and notes all that is wrong with it. Where something was, the `T` holds
/// stand-ins; `None` where not even those could be found.
pub(super) fn read<T: DeserializeOwned>(
    root: &Spanned<DeValue<'_>>,
    mistakes: &mut Mistakes,
) -> Option<T> {
    let mut repairs = Repairs::new();
    while repairs.len() < MOST_MISTAKES {
        let top = Node { value: Some(root), path: String::new(), repairs: &repairs };
        match T::deserialize(top) {
            Ok(value) => return Some(value),
            Err(fault) => mend(fault, &mut repairs, mistakes)?,
        }
    }
    None
}

/// Notes a fault and mends its place; `None` where that has been in vain.
fn mend(fault: Fault, repairs: &mut Repairs, mistakes: &mut Mistakes) -> Option<()> {
    let path = fault.path.unwrap_or_default();
    let (path, problem, repair) = match fault.what {
        What::Missing(key) => {
            (child(&path, key), format!("{key} is missing; add it"), Repair::StandIn)
        }
        What::Unknown(problem) => (path, problem, Repair::PassOver),
        What::Wrong(problem) => (path, problem, Repair::StandIn),
    };
    let stands_in = |path: &str| repairs.get(path) == Some(&Repair::StandIn);
    if stands_in(&path) {
        // No stand-in fits: the element of a list that it belongs to is passed over.
        let end = path.rfind(']')?;
        let element = path[..=end].to_owned();
        return repairs.insert(element, Repair::PassOver).is_none().then_some(());
    }
    // What is missing in a stand-in is nobody's mistake.
    let mut above = path.as_str();
    let mut made_up = false;
    while let Some(at) = above.rfind(['.', '[']) {
        above = &above[..at];
        made_up |= stands_in(above);
    }
    if !made_up {
        mistakes.add(&path, problem);
        mistakes.doubt(&path);
    }
    repairs.insert(path, repair);
    Some(())
}

/// Why a place can't be read.
#[derive(Debug)]
struct Fault {
    /// The place; none before the deserializer that knows it has seen the fault.
    path: Option<String>,
    what: What,
}

#[derive(Debug)]
enum What {
    Missing(&'static str),
    Unknown(String),
    Wrong(String),
}

impl Fault {
    fn at(self, path: &str) -> Self {
        Self { path: self.path.or_else(|| Some(path.to_owned())), what: self.what }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Missing(key) => write!(f, "{key} is missing"),
            What::Unknown(problem) | What::Wrong(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: Display>(problem: T) -> Self {
        Self { path: None, what: What::Wrong(problem.to_string()) }
    }

    fn missing_field(field: &'static str) -> Self {
        Self { path: None, what: What::Missing(field) }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let problem = format!("there is no key {field} here, but: {}", expected.join(", "));
        Self { path: None, what: What::Unknown(problem) }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(format!("{variant:?} is none of: {}", expected.join(", ")))
    }
}

/// A place in the file; without a value, where something stands in for one.
struct Node<'a, 'de> {
    value: Option<&'a Spanned<DeValue<'de>>>,
    path: String,
    repairs: &'a Repairs,
}

impl<'a, 'de> Node<'a, 'de> {
    /// The node below this one at `path`, mended where it was to be.
    fn below(&self, value: Option<&'a Spanned<DeValue<'de>>>, path: String) -> Self {
        let mended = self.repairs.get(&path) == Some(&Repair::StandIn);
        Node { value: if mended { None } else { value }, path, repairs: self.repairs }
    }

    fn fields(&self) -> Fields<'a, 'de> {
        let mut entries = Vec::new();
        if let Some(DeValue::Table(table)) = self.value.map(Spanned::get_ref) {
            for (key, value) in table {
                let path = child(&self.path, key.get_ref());
                if self.repairs.get(&path) != Some(&Repair::PassOver) {
                    entries.push((key.get_ref().to_string(), self.below(Some(value), path)));
                }
            }
        }
        for (path, repair) in self.repairs {
            let prefix = if self.path.is_empty() { "" } else { &*format!("{}.", self.path) };
            let key = path.strip_prefix(prefix).filter(|key| !key.contains(['.', '[', '"']));
            if let (Some(key), Repair::StandIn) = (key, repair)
                && entries.iter().all(|(there, _)| there != key)
            {
                entries.push((key.to_owned(), self.below(None, path.clone())));
            }
        }
        Fields { entries: entries.into_iter(), value: None }
    }

    fn elements(&self) -> Elements<'a, 'de> {
        let Some(DeValue::Array(array)) = self.value.map(Spanned::get_ref) else {
            return Elements(Vec::new().into_iter());
        };
        let elements: Vec<_> = array
            .iter()
            .enumerate()
            .map(|(at, value)| (value, element(&self.path, at)))
            .filter(|(_, path)| self.repairs.get(path) != Some(&Repair::PassOver))
            .map(|(value, path)| self.below(Some(value), path))
            .collect();
        Elements(elements.into_iter())
    }

    /// What the TOML crate makes of a value that is no table and no list.
    fn scalar<T>(
        &self,
        value: &Spanned<DeValue<'de>>,
        read: impl FnOnce(toml::de::ValueDeserializer<'de>) -> Result<T, toml::de::Error>,
    ) -> Result<T, Fault> {
        read(value.clone().into()).map_err(|error| Fault::custom(error.message()).at(&self.path))
    }
}

/// Stand-ins that are the same whatever is asked for.
macro_rules! stand_in {
    ($($method:ident => $visit:ident($value:expr),)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            match self.value {
                Some(_) => self.deserialize_any(visitor),
                None => visitor.$visit($value).map_err(|fault: Fault| fault.at(&self.path)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Node<'_, 'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value.map(|value| (value.get_ref(), value)) {
            Some((DeValue::Table(_), _)) => visitor.visit_map(self.fields()),
            Some((DeValue::Array(_), _)) => visitor.visit_seq(self.elements()),
            Some((_, value)) => {
                return self.scalar(value, |value| value.deserialize_any(visitor));
            }
            None => visitor.visit_unit(),
        }
        .map_err(|fault| fault.at(&self.path))
    }

    stand_in! {
        deserialize_bool => visit_bool(false),
        deserialize_i8 => visit_i8(0),
        deserialize_i16 => visit_i16(0),
        deserialize_i32 => visit_i32(0),
        deserialize_i64 => visit_i64(0),
        deserialize_u8 => visit_u8(0),
        deserialize_u16 => visit_u16(0),
        deserialize_u32 => visit_u32(0),
        deserialize_u64 => visit_u64(0),
        deserialize_f32 => visit_f32(0.0),
        deserialize_f64 => visit_f64(0.0),
        deserialize_str => visit_borrowed_str(""),
        deserialize_string => visit_borrowed_str(""),
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Some(_) => visitor.visit_some(self),
            None => visitor.visit_none(),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Some(_) => self.deserialize_any(visitor),
            None => visitor.visit_seq(self.elements()).map_err(|fault| fault.at(&self.path)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Some(_) => self.deserialize_any(visitor),
            None => visitor.visit_map(self.fields()).map_err(|fault| fault.at(&self.path)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let path = self.path.clone();
        match self.value.map(|value| (value.get_ref(), value)) {
            // A plain choice, whose error is to list the others.
            Some((DeValue::String(text), _)) => {
                visitor.visit_enum(StrDeserializer::<Fault>::new(text))
            }
            Some((_, value)) => {
                self.scalar(value, |value| value.deserialize_enum(name, variants, visitor))
            }
            None => visitor.visit_enum(FirstChoice { variants, node: self }),
        }
        .map_err(|fault| fault.at(&path))
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// The entries of a table.
struct Fields<'a, 'de> {
    entries: std::vec::IntoIter<(String, Node<'a, 'de>)>,
    value: Option<Node<'a, 'de>>,
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let Some((key, node)) = self.entries.next() else { return Ok(None) };
        let read = seed.deserialize(StrDeserializer::new(&key));
        let read = read.map_err(|fault: Fault| fault.at(&node.path))?;
        self.value = Some(node);
        Ok(Some(read))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let node = self.value.take().ok_or_else(|| Fault::custom("a key comes first"))?;
        let path = node.path.clone();
        seed.deserialize(node).map_err(|fault| fault.at(&path))
    }
}

/// The elements of a list.
struct Elements<'a, 'de>(std::vec::IntoIter<Node<'a, 'de>>);

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some(node) = self.0.next() else { return Ok(None) };
        let path = node.path.clone();
        seed.deserialize(node).map(Some).map_err(|fault| fault.at(&path))
    }
}

/// The first of an enum's variants.
struct FirstChoice<'a, 'de> {
    variants: &'static [&'static str],
    node: Node<'a, 'de>,
}

impl<'a, 'de> EnumAccess<'de> for FirstChoice<'a, 'de> {
    type Error = Fault;
    type Variant = Node<'a, 'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), Fault> {
        let first = self.variants.first().copied().unwrap_or_default();
        Ok((seed.deserialize(BorrowedStrDeserializer::<Fault>::new(first))?, self.node))
    }
}

impl<'de> VariantAccess<'de> for Node<'_, 'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }
}
