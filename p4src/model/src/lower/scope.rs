//! What names mean.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::hash::Polynomial;
use crate::ir::{CounterKind, Slot};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{ActionDecl, ControlDecl, FunctionDecl, InstanceDecl, Name, ParserDecl};
use crate::types::Type;

/// Something that lies in the frame: a variable or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    pub(crate) ty: Type,
    pub(crate) slot: Slot,
    /// `low` and `width` of a slice of the scalar.
    pub(crate) bits: Option<(u16, u16)>,
    pub(crate) writable: bool,
}

impl Place {
    pub(crate) fn whole(ty: Type, slot: Slot) -> Place {
        Place { ty, slot, bits: None, writable: true }
    }

    /// True if the two have a slot in common.
    pub(crate) fn overlaps(&self, other: &Place) -> bool {
        let end = |place: &Place| place.slot + place.ty.slots();
        self.slot < end(other) && other.slot < end(self)
    }
}

/// Instances of extern objects.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Extern {
    Register(u32),
    /// The action and the type of its result.
    RegisterAction(u32, Type),
    Polynomial(Polynomial),
    Hash(u32),
    Random(u16),
    Checksum(u32),
    Counter(u32),
    DirectCounter(CounterKind),
    Mirror,
    Resubmit,
    Digest(u32, Type),
    ValueSet(u32, Type),
    ParserPriority,
    ParserCounter(Slot),
}

/// A control or parser that was instantiated: its declaration, the scope with its constructor
/// parameters, its name for the control plane, and its code once it was applied.
#[derive(Debug)]
pub(crate) struct Instance<D> {
    pub(crate) decl: Rc<D>,
    pub(crate) scope: Rc<Scope>,
    pub(crate) path: String,
    pub(crate) applied: RefCell<Option<Applied>>,
}

/// How an instance was applied first. It can be applied again with the same arguments.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub(crate) params: Vec<Binding>,
    /// The body or sub-parser.
    pub(crate) code: u32,
}

#[derive(Debug, Clone)]
pub(crate) enum Binding {
    Type(Type),
    Const(u128, Type),
    Place(Place),
    /// `packet_in` or `packet_out`.
    Packet,
    Action(Rc<ActionDecl>),
    Function(Rc<FunctionDecl>),
    Table(u32),
    Control(Rc<ControlDecl>),
    Parser(Rc<ParserDecl>),
    ControlInstance(Rc<Instance<ControlDecl>>),
    ParserInstance(Rc<Instance<ParserDecl>>),
    Extern(Extern),
    /// `Pipeline` or `Switch`.
    Package(Rc<InstanceDecl>),
}

impl Binding {
    /// The same thing, so that code made for the one serves the other.
    pub(crate) fn same(&self, other: &Binding) -> bool {
        match (self, other) {
            (Binding::Place(a), Binding::Place(b)) => a == b,
            (Binding::Const(a, s), Binding::Const(b, t)) => a == b && s == t,
            (Binding::Extern(a), Binding::Extern(b)) => a == b,
            (Binding::Packet, Binding::Packet) => true,
            _ => false,
        }
    }
}

/// Names, and the scope around them.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    names: RefCell<HashMap<Rc<str>, Binding>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub(crate) fn inside(parent: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope { names: RefCell::default(), parent: Some(parent.clone()) })
    }

    pub(crate) fn declare(&self, name: &Name, binding: Binding) -> Res<()> {
        let before = self.names.borrow_mut().insert(name.text.clone(), binding);
        if before.is_some() {
            return fault(name.span, format!("`{}` is declared twice", name.text));
        }
        Ok(())
    }

    /// The meaning of a name and the scope that holds it.
    pub(crate) fn find(self: &Rc<Scope>, name: &str) -> Option<(Binding, Rc<Scope>)> {
        let mut scope = self;
        loop {
            if let Some(binding) = scope.names.borrow().get(name) {
                return Some((binding.clone(), scope.clone()));
            }
            scope = scope.parent.as_ref()?;
        }
    }

    pub(crate) fn get(self: &Rc<Scope>, name: &Name) -> Res<Binding> {
        self.get_with_scope(name).map(|(binding, _)| binding)
    }

    pub(crate) fn get_with_scope(self: &Rc<Scope>, name: &Name) -> Res<(Binding, Rc<Scope>)> {
        match self.find(&name.text) {
            Some(found) => Ok(found),
            None => unknown(name.span, &name.text),
        }
    }
}

/// The error for a name that means nothing.
pub(crate) fn unknown<T>(span: Span, name: &str) -> Res<T> {
    if crate::arch::UNSUPPORTED_EXTERNS.contains(&name) {
        return fault(span, format!("the extern `{name}` is not supported by the model"));
    }
    fault(span, format!("`{name}` is not declared"))
}
