//! Parsers: states, extraction, look-ahead, selection.

use std::collections::HashMap;
use std::rc::Rc;

use super::call::Passing;
use super::control::same_arguments;
use super::expr::Typed;
use super::scope::{Applied, Binding, Extern, Instance, Place, Scope};
use super::stmt::no_such_method;
use super::{Lowerer, Stage};
use crate::ir::{self, Block, KeySet, Next, ParserCode, State, Stmt, Target};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{Arg, Expr, ExprKind, Name, ParserDecl, SelectCase, Transition, TypeExpr};
use crate::types::{Type, mask};

/// States of one parser by name.
type Names = HashMap<Rc<str>, u32>;

impl Lowerer {
    /// `parser.apply(packet, ...);` inside a state.
    pub(super) fn apply_parser(
        &mut self,
        scope: &Rc<Scope>,
        instance: &Rc<Instance<ParserDecl>>,
        args: &[Arg],
        span: Span,
        out: &mut Block,
    ) -> Res<()> {
        self.only_in(&[Stage::Parser], span, "applying a parser")?;
        let decl = &instance.decl;
        let args = Self::order(&decl.params, args, span)?;
        let previous = instance.applied.borrow().clone();
        let before = previous.as_ref().map(|applied| &applied.params[..]);
        let home = &instance.scope;
        let bound = self.bind(scope, home, &decl.params, &args, Passing::Alias, before, out)?;
        let code = match previous {
            Some(applied) => {
                same_arguments(&applied, &bound.params, span)?;
                applied.code
            }
            None => {
                let code = self.parser_code(instance, &bound.params)?;
                let params = bound.params;
                *instance.applied.borrow_mut() = Some(Applied { params, code });
                code
            }
        };
        out.push(Stmt::SubParser(code));
        out.extend(bound.after);
        Ok(())
    }

    /// The states of a parser with its parameters bound.
    pub(super) fn parser_code(
        &mut self,
        instance: &Instance<ParserDecl>,
        params: &[Binding],
    ) -> Res<u32> {
        let decl = &instance.decl;
        let scope = Scope::inside(&instance.scope);
        for (param, binding) in decl.params.iter().zip(params) {
            scope.declare(&param.name, binding.clone())?;
        }
        let outer_path = std::mem::replace(&mut self.path, instance.path.clone());
        let mut before = Block::new();
        for local in &decl.locals {
            self.declare(&scope, local, &mut before)?;
        }
        let mut names = Names::new();
        for (index, state) in decl.states.iter().enumerate() {
            let text = &state.name.text;
            let reserved = matches!(&**text, "accept" | "reject");
            if reserved || names.insert(text.clone(), index as u32).is_some() {
                return fault(state.name.span, format!("state `{text}` exists already"));
            }
        }
        let Some(&start) = names.get("start") else {
            return fault(decl.name.span, "this parser has no state `start`");
        };
        let mut states = Vec::new();
        for state in &decl.states {
            let inner = Scope::inside(&scope);
            let mut body = Block::new();
            for stmt in &state.body {
                self.statement(&inner, stmt, &mut body)?;
            }
            let next = self.transition(&inner, &state.transition, &names)?;
            states.push(State { body, next });
        }
        self.path = outer_path;
        let mut start = Target::State(start);
        if !before.is_empty() {
            states.push(State { body: before, next: Next::To(start) });
            start = Target::State(states.len() as u32 - 1);
        }
        self.code.parsers.push(ParserCode { states, start });
        Ok(self.code.parsers.len() as u32 - 1)
    }

    fn transition(
        &mut self,
        scope: &Rc<Scope>,
        transition: &Transition,
        names: &Names,
    ) -> Res<Next> {
        let (span, subjects, cases) = match transition {
            Transition::Reject => return Ok(Next::To(Target::Reject)),
            Transition::To(name) => return Ok(Next::To(target(name, names)?)),
            Transition::Select(span, subjects, cases) => (*span, subjects, cases),
        };
        let mut values = Vec::new();
        let mut types = Vec::new();
        for subject in subjects {
            let (value, ty) = self.scalar(scope, subject)?;
            if ty.width().is_none() {
                return fault(subject.span, "select needs a value of known width");
            }
            values.push(value);
            types.push(ty);
        }
        if values.is_empty() {
            return fault(span, "select needs a value");
        }
        let mut out = Vec::new();
        for case in cases {
            out.push((self.case(scope, case, &types)?, target(&case.target, names)?));
        }
        Ok(Next::Select { values, cases: out })
    }

    fn case(&mut self, scope: &Rc<Scope>, case: &SelectCase, types: &[Type]) -> Res<Vec<KeySet>> {
        if let [only] = &case.keys[..]
            && matches!(only.kind, ExprKind::Default | ExprKind::DontCare)
        {
            return Ok(vec![KeySet::Any; types.len()]);
        }
        if case.keys.len() != types.len() {
            let message =
                format!("select has {} values, this case {}", types.len(), case.keys.len());
            return fault(case.target.span, message);
        }
        case.keys.iter().zip(types).map(|(key, ty)| self.key_set(scope, key, ty)).collect()
    }

    fn key_set(&mut self, scope: &Rc<Scope>, key: &Expr, ty: &Type) -> Res<KeySet> {
        let all = mask(ty.width().unwrap_or(0));
        match &key.kind {
            ExprKind::Default | ExprKind::DontCare => return Ok(KeySet::Any),
            ExprKind::Mask(value, bits) => {
                let value = self.constant_of(scope, value, ty)?;
                let mask = self.constant_of(scope, bits, ty)?;
                return Ok(KeySet::Masked { value: value & mask, mask });
            }
            ExprKind::Range(low, high) => {
                let low = self.constant_of(scope, low, ty)?;
                let high = self.constant_of(scope, high, ty)?;
                return Ok(KeySet::Range { low, high });
            }
            ExprKind::Path(name) => {
                if let Binding::Extern(Extern::ValueSet(set, set_ty)) = scope.get(name)? {
                    if set_ty != *ty {
                        return fault(key.span, format!("expected {ty}, found a set of {set_ty}"));
                    }
                    return Ok(KeySet::ValueSet(set));
                }
            }
            _ => {}
        }
        Ok(KeySet::Masked { value: self.constant_of(scope, key, ty)?, mask: all })
    }

    /// `extract`, `advance` and `emit`.
    pub(super) fn packet_statement(
        &mut self,
        scope: &Rc<Scope>,
        method: &Name,
        args: &[Arg],
        span: Span,
        out: &mut Block,
    ) -> Res<()> {
        let [arg] = args else {
            return fault(span, format!("the model knows `{}` with one argument", method.text));
        };
        let arg = &arg.value;
        match &*method.text {
            "extract" => {
                self.only_in(&[Stage::Parser], span, "extract")?;
                if let ExprKind::Member(stack, next) = &arg.kind
                    && &*next.text == "next"
                    && let Some(place) = self.place(scope, stack)?
                    && let Type::Stack(element, count) = &place.ty
                {
                    let layout = self.layout_of(&Type::Header(element.clone()), span)?;
                    let (stack, size, count) = (place.slot, element.slots, *count);
                    out.push(Stmt::ExtractNext { stack, layout, size, count });
                    return Ok(());
                }
                let place = self.target(scope, arg)?;
                let layout = self.layout_of(&place.ty, arg.span)?;
                out.push(Stmt::Extract { header: place.slot, layout });
                Ok(())
            }
            "advance" => {
                self.only_in(&[Stage::Parser], span, "advance")?;
                let bits = self.typed(scope, arg, &Type::Bit(32))?;
                out.push(Stmt::Advance(bits));
                Ok(())
            }
            "emit" => {
                self.only_in(&[Stage::Deparser], span, "emit")?;
                match self.place(scope, arg)? {
                    Some(place) => self.emit(&place, arg.span, out),
                    None => fault(arg.span, "only headers are emitted"),
                }
            }
            other => no_such_method(method.span, "a packet", other),
        }
    }

    /// Emits a header, or every header in a struct or stack.
    fn emit(&mut self, place: &Place, span: Span, out: &mut Block) -> Res<()> {
        match &place.ty {
            Type::Header(_) => {
                let layout = self.layout_of(&place.ty, span)?;
                out.push(Stmt::Emit { header: place.slot, layout });
                Ok(())
            }
            Type::Struct(fields) => {
                for field in &fields.fields {
                    let part = Place::whole(field.ty.clone(), place.slot + field.offset);
                    self.emit(&part, span, out)?;
                }
                Ok(())
            }
            Type::Stack(element, count) => {
                for index in 0..*count {
                    let slot = place.slot + 1 + index * element.slots;
                    let part = Place::whole(Type::Header(element.clone()), slot);
                    self.emit(&part, span, out)?;
                }
                Ok(())
            }
            ty => fault(span, format!("only headers are emitted, not {ty}")),
        }
    }

    /// `packet.lookahead<T>()` of a scalar.
    pub(super) fn packet_value(
        &mut self,
        scope: &Rc<Scope>,
        method: &Name,
        types: &[TypeExpr],
    ) -> Res<Typed> {
        let ([ty], "lookahead") = (types, &*method.text) else {
            return no_such_method(method.span, "a packet", &method.text);
        };
        self.only_in(&[Stage::Parser], method.span, "lookahead")?;
        let ty = self.resolve(scope, ty)?;
        match ty.width() {
            Some(width) => Ok((ir::Expr::Lookahead { offset: 0, width }, ty)),
            None => fault(method.span, "assign this look-ahead to a variable first"),
        }
    }

    /// `packet.lookahead<header>().field`
    pub(super) fn lookahead_field(
        &mut self,
        scope: &Rc<Scope>,
        callee: &Expr,
        types: &[TypeExpr],
        name: &Name,
        span: Span,
    ) -> Res<Typed> {
        let (ExprKind::Member(_, method), [ty]) = (&callee.kind, types) else {
            return fault(span, format!("this call has no member `{}`", name.text));
        };
        if &*method.text != "lookahead" {
            return fault(span, format!("this call has no member `{}`", name.text));
        }
        self.only_in(&[Stage::Parser], span, "lookahead")?;
        let ty = self.resolve(scope, ty)?;
        let (Type::Header(fields) | Type::Struct(fields)) = &ty else {
            return fault(span, format!("{ty} has no fields"));
        };
        let mut offset = 0;
        for field in &fields.fields {
            let Some(width) = field.ty.width() else {
                return fault(span, format!("look-ahead of {} is not supported", field.ty));
            };
            if field.name == name.text {
                return Ok((ir::Expr::Lookahead { offset, width }, field.ty.clone()));
            }
            offset += u32::from(width);
        }
        fault(name.span, format!("{ty} has no field `{}`", name.text))
    }

    /// `target = packet.lookahead<header>();`
    pub(super) fn lookahead_into(
        &mut self,
        scope: &Rc<Scope>,
        target: &Place,
        types: &[TypeExpr],
        span: Span,
        out: &mut Block,
    ) -> Res<()> {
        self.only_in(&[Stage::Parser], span, "lookahead")?;
        let [ty] = types else { return fault(span, "lookahead needs a type") };
        let ty = self.resolve(scope, ty)?;
        let (Type::Header(fields) | Type::Struct(fields)) = &ty else {
            return fault(span, format!("look-ahead of {ty} is not supported"));
        };
        if ty != target.ty {
            return fault(span, format!("expected {}, found {ty}", target.ty));
        }
        if let Type::Header(_) = ty {
            out.push(Stmt::Set { slot: target.slot, value: ir::Expr::Const(1) });
        }
        let mut offset = 0;
        for field in &fields.fields {
            let Some(width) = field.ty.width() else {
                return fault(span, format!("look-ahead of {} is not supported", field.ty));
            };
            let value = ir::Expr::Lookahead { offset, width };
            out.push(Stmt::Set { slot: target.slot + field.offset, value });
            offset += u32::from(width);
        }
        Ok(())
    }

    /// `target = port_metadata_unpack<T>(packet);` reads and passes the 64 bits of port metadata.
    pub(super) fn port_metadata(
        &mut self,
        scope: &Rc<Scope>,
        target: &Place,
        types: &[TypeExpr],
        span: Span,
        out: &mut Block,
    ) -> Res<()> {
        if self.egress {
            return fault(span, "only the ingress parser sees port metadata");
        }
        self.lookahead_into(scope, target, types, span, out)?;
        let (Type::Header(fields) | Type::Struct(fields)) = &target.ty else {
            return fault(span, "port metadata is a struct or header");
        };
        let bits: u16 = fields.fields.iter().filter_map(|f| f.ty.width()).sum();
        if bits > 64 {
            return fault(span, format!("port metadata has 64 bits, not {bits}"));
        }
        out.push(Stmt::Advance(ir::Expr::Const(64)));
        Ok(())
    }
}

fn target(name: &Name, names: &Names) -> Res<Target> {
    match &*name.text {
        "accept" => Ok(Target::Accept),
        "reject" => Ok(Target::Reject),
        text => match names.get(text) {
            Some(&index) => Ok(Target::State(index)),
            None => fault(name.span, format!("there is no state `{text}`")),
        },
    }
}
