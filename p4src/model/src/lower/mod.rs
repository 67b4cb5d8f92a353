//! From the tree to the program that runs: resolves names, checks types, computes constants,
//! gives every variable its slots and instantiates every control in its place.
//!
//! Elaboration follows the program from `main`: what is never instantiated is parsed but not
//! checked further, as in a compiler that drops unused declarations.

mod call;
mod control;
mod data;
mod expr;
mod externs;
mod package;
mod parser;
mod paths;
mod salu;
pub(crate) mod scope;
mod stmt;
mod table;
mod types;

use std::collections::HashMap;
use std::rc::Rc;

use crate::ir::{Code, Slot};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{Annotation, Decl, Name};
use crate::types::Type;
use scope::{Binding, Place, Scope};

/// Where in a pipe the code stands; it decides what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Parser,
    Control,
    Deparser,
    /// The body of a register action.
    StatefulAlu,
}

/// Turns declarations into [`Code`].
struct Lowerer {
    code: Code,
    globals: Rc<Scope>,
    /// Members of `error`; the value of one is its index.
    errors: Vec<Rc<str>>,
    next_slot: Slot,
    /// Layouts by header name.
    layouts: HashMap<Rc<str>, u32>,
    /// Name of the instance that is elaborated, for the control plane.
    path: String,
    stage: Stage,
    egress: bool,
    /// The slot of `parser_err` in this gress.
    parser_err: Option<Slot>,
    reads_parser_err: bool,
    /// Functions and actions being inlined, innermost last.
    inlining: Vec<Rc<str>>,
    /// Where the function that is being inlined puts its result.
    result: Option<Place>,
}

/// The program that `decls` describe.
pub(crate) fn program(decls: &[Decl]) -> Res<Code> {
    let mut lowerer = Lowerer {
        code: Code::default(),
        globals: Rc::default(),
        errors: Vec::new(),
        next_slot: 0,
        layouts: HashMap::new(),
        path: String::new(),
        stage: Stage::Control,
        egress: false,
        parser_err: None,
        reads_parser_err: false,
        inlining: Vec::new(),
        result: None,
    };
    let globals = lowerer.globals.clone();
    for decl in decls {
        lowerer.declare(&globals, decl, &mut Vec::new())?;
    }
    lowerer.main()?;
    lowerer.code.frame = lowerer.next_slot as usize;
    Ok(lowerer.code)
}

impl Lowerer {
    /// New slots for a value of the type.
    fn allocate(&mut self, ty: Type) -> Place {
        let slot = self.next_slot;
        self.next_slot += ty.slots();
        Place::whole(ty, slot)
    }

    /// The name that the control plane uses for an object of the current instance.
    fn control_name(&self, annotations: &[Annotation], name: &Name) -> String {
        let given = annotations.iter().find(|a| &*a.name.text == "name");
        match given.and_then(|a| a.text.as_deref()) {
            Some(text) if text.starts_with('.') => text[1..].to_owned(),
            text => {
                let local = text.unwrap_or(&name.text);
                if self.path.is_empty() {
                    local.to_owned()
                } else {
                    format!("{}.{local}", self.path)
                }
            }
        }
    }

    /// Refuses what only works elsewhere.
    fn only_in(&self, stages: &[Stage], span: Span, what: &str) -> Res<()> {
        if stages.contains(&self.stage) {
            return Ok(());
        }
        let here = match self.stage {
            Stage::Parser => "in a parser",
            Stage::Control => "in a control",
            Stage::Deparser => "in a deparser",
            Stage::StatefulAlu => "in a register action",
        };
        fault(span, format!("{what} is not possible {here}"))
    }

    /// The binding of a place for a new name.
    fn declare_place(&mut self, scope: &Scope, name: &Name, place: Place) -> Res<()> {
        scope.declare(name, Binding::Place(place))
    }
}
