//! Calls: actions, functions, methods of headers, tables and extern objects.

use std::rc::Rc;

use super::expr::{Typed, convert, operation};
use super::scope::{Binding, Extern, Place, Scope, unknown};
use super::stmt::{copy, invalidate, no_such_method, same};
use super::{Lowerer, Stage};
use crate::ir::{self, Block, Op, Stmt};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{Arg, Direction, Expr, ExprKind, Name, Param, TypeExpr};
use crate::types::Type;

/// How parameters are given: actions and functions see the variables around them, so they get
/// copies; controls and parsers see only their parameters, so these can lie where the arguments
/// lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    Copy,
    Alias,
}

/// The parameters of a call as they were bound, and the copies to make after it.
pub(super) struct Bound {
    pub(super) params: Vec<Binding>,
    pub(super) after: Block,
}

impl Lowerer {
    /// The arguments in the order of the parameters.
    pub(super) fn order<'a>(
        params: &'a [Param],
        args: &'a [Arg],
        span: Span,
    ) -> Res<Vec<&'a Expr>> {
        if args.len() > params.len() {
            let message = format!("{} arguments, but {} parameters", args.len(), params.len());
            return fault(span, message);
        }
        let mut out = Vec::new();
        for (index, param) in params.iter().enumerate() {
            let named = args
                .iter()
                .find(|a| a.name.as_ref().is_some_and(|name| name.text == param.name.text));
            let positional = args.get(index).filter(|a| a.name.is_none());
            match named.or(positional).map(|a| &a.value).or(param.default.as_ref()) {
                Some(value) => out.push(value),
                None => return fault(span, format!("argument `{}` is missing", param.name.text)),
            }
        }
        Ok(out)
    }

    /// Evaluates arguments into parameters. `previous` are the parameters of an earlier
    /// application of the same code: they keep their slots. `home` is where the parameters' types
    /// are known.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn bind(
        &mut self,
        scope: &Rc<Scope>,
        home: &Rc<Scope>,
        params: &[Param],
        args: &[&Expr],
        passing: Passing,
        previous: Option<&[Binding]>,
        out: &mut Block,
    ) -> Res<Bound> {
        let mut bound = Bound { params: Vec::new(), after: Block::new() };
        let mut written: Vec<Place> = Vec::new();
        for (param, arg) in params.iter().zip(args) {
            if matches!(param.direction, Direction::Out | Direction::InOut) {
                written.push(self.target(scope, arg)?);
            }
        }
        for (index, (param, arg)) in params.iter().zip(args).enumerate() {
            let before = previous.and_then(|p| p.get(index));
            let ty = if self.is_object(scope, arg)? {
                Type::Void
            } else {
                self.resolve(home, &param.ty)?
            };
            let binding =
                self.bind_one(scope, param, ty, arg, passing, before, &written, &mut bound, out)?;
            bound.params.push(binding);
        }
        Ok(bound)
    }

    /// An argument that is a packet or an extern object, not a value.
    fn is_object(&self, scope: &Rc<Scope>, arg: &Expr) -> Res<bool> {
        let ExprKind::Path(name) = &arg.kind else { return Ok(false) };
        Ok(matches!(scope.get(name)?, Binding::Extern(_) | Binding::Packet))
    }

    #[allow(clippy::too_many_arguments)]
    fn bind_one(
        &mut self,
        scope: &Rc<Scope>,
        param: &Param,
        ty: Type,
        arg: &Expr,
        passing: Passing,
        before: Option<&Binding>,
        written: &[Place],
        bound: &mut Bound,
        out: &mut Block,
    ) -> Res<Binding> {
        if let ExprKind::Path(name) = &arg.kind
            && let binding @ (Binding::Extern(_) | Binding::Packet) = scope.get(name)?
        {
            return Ok(binding);
        }
        let writes = matches!(param.direction, Direction::Out | Direction::InOut);
        let source = self.place(scope, arg)?;
        if let Some(place) = &source
            && place.bits.is_none()
            && passing == Passing::Alias
        {
            if place.ty != ty {
                return fault(arg.span, format!("expected {ty}, found {}", place.ty));
            }
            let others = written.iter().filter(|other| place.overlaps(other)).count();
            if others == usize::from(writes) {
                if param.direction == Direction::Out {
                    invalidate(place, out);
                }
                let place = Place { writable: writes, ..place.clone() };
                return Ok(Binding::Place(place));
            }
        }
        let mut fresh = match before {
            Some(Binding::Place(place)) => Place { writable: true, ..place.clone() },
            Some(Binding::Const(..)) | None => self.allocate(ty.clone()),
            Some(_) => return fault(arg.span, "this argument differs from the first application"),
        };
        match param.direction {
            Direction::Out => invalidate(&fresh, out),
            _ => self.assign(scope, &fresh, arg, out)?,
        }
        if let [.., Stmt::Set { slot, value: ir::Expr::Const(value) }] = out[..]
            && slot == fresh.slot
            && !matches!(before, Some(Binding::Place(_)))
            && !writes
            && ty.is_scalar()
        {
            out.pop();
            return Ok(Binding::Const(value, ty));
        }
        if writes {
            let target = self.target(scope, arg)?;
            let target_ty = target.bits.map_or(target.ty.clone(), |(_, w)| Type::Bit(w));
            if target_ty != ty {
                return fault(arg.span, format!("expected {ty}, found {target_ty}"));
            }
            copy(&target, &fresh, &mut bound.after);
        }
        fresh.writable = writes;
        Ok(Binding::Place(fresh))
    }

    /// The body of an action or function with its parameters bound, in the scope where it was
    /// declared.
    #[allow(clippy::too_many_arguments)]
    fn inline(
        &mut self,
        scope: &Rc<Scope>,
        declared_in: &Rc<Scope>,
        name: &Name,
        params: &[Param],
        args: &[Arg],
        body: &[crate::syntax::ast::Stmt],
        result: Option<Place>,
        span: Span,
        out: &mut Block,
    ) -> Res<()> {
        if self.inlining.contains(&name.text) {
            return fault(span, format!("`{}` calls itself", name.text));
        }
        let args = Self::order(params, args, span)?;
        let bound = self.bind(scope, declared_in, params, &args, Passing::Copy, None, out)?;
        let inner = Scope::inside(declared_in);
        for (param, binding) in params.iter().zip(bound.params) {
            inner.declare(&param.name, binding)?;
        }
        self.inlining.push(name.text.clone());
        let outer = std::mem::replace(&mut self.result, result);
        let body = self.block(&inner, body);
        self.result = outer;
        self.inlining.pop();
        out.push(Stmt::Scope { body: body?, after: bound.after });
        Ok(())
    }

    pub(super) fn call_statement(
        &mut self,
        scope: &Rc<Scope>,
        callee: &Expr,
        types: &[TypeExpr],
        args: &[Arg],
        span: Span,
        out: &mut Block,
    ) -> Res<()> {
        if let ExprKind::Path(name) = &callee.kind {
            return match scope.find(&name.text) {
                Some((Binding::Action(decl), home)) => {
                    self.only_in(&[Stage::Control], span, "an action")?;
                    let (name, params) = (&decl.name, &decl.params);
                    self.inline(scope, &home, name, params, args, &decl.body, None, span, out)
                }
                Some((Binding::Function(_), _)) => {
                    let (value, _) = self.call_value(scope, callee, types, args, span)?;
                    out.push(Stmt::Do(value));
                    Ok(())
                }
                Some(_) => fault(name.span, format!("`{}` can't be called", name.text)),
                None => match &*name.text {
                    "invalidate" => fault(span, "`invalidate` is not supported by the model"),
                    "verify" => fault(span, "Tofino's parser has no `verify`; use select"),
                    _ => unknown(name.span, &name.text),
                },
            };
        }
        let ExprKind::Member(object, method) = &callee.kind else {
            return fault(span, "this can't be called");
        };
        if let Some(place) = self.place(scope, object)? {
            return self.header_statement(scope, &place, method, args, out);
        }
        let ExprKind::Path(name) = &object.kind else {
            return fault(span, "this can't be called");
        };
        match scope.get(name)? {
            Binding::Table(table) => {
                self.applied_table(scope, callee)?;
                out.push(Stmt::Apply(table));
                Ok(())
            }
            Binding::ControlInstance(instance) if &*method.text == "apply" => {
                self.apply_control(scope, &instance, args, span, out)
            }
            Binding::Control(decl) if &*method.text == "apply" => {
                let instance = self.control_instance(scope, &decl, &[], &decl.name, &[], span)?;
                self.apply_control(scope, &instance, args, span, out)
            }
            Binding::ParserInstance(instance) if &*method.text == "apply" => {
                self.apply_parser(scope, &instance, args, span, out)
            }
            Binding::Parser(decl) if &*method.text == "apply" => {
                let instance = self.parser_instance(scope, &decl, &[], &decl.name, &[], span)?;
                self.apply_parser(scope, &instance, args, span, out)
            }
            Binding::Packet => self.packet_statement(scope, method, args, span, out),
            Binding::Extern(object) => {
                self.extern_statement(scope, &object, method, types, args, span, out)
            }
            _ => no_such_method(method.span, &format!("`{}`", name.text), &method.text),
        }
    }

    /// The table of `table.apply`, checked.
    pub(super) fn applied_table(&self, scope: &Rc<Scope>, callee: &Expr) -> Res<Option<u32>> {
        let ExprKind::Member(object, method) = &callee.kind else { return Ok(None) };
        let ExprKind::Path(name) = &object.kind else { return Ok(None) };
        let Some((Binding::Table(table), _)) = scope.find(&name.text) else { return Ok(None) };
        if &*method.text != "apply" {
            return no_such_method(method.span, "a table", &method.text);
        }
        self.only_in(&[Stage::Control], method.span, "applying a table")?;
        if !self.inlining.is_empty() {
            return fault(method.span, "an action can't apply a table");
        }
        Ok(Some(table))
    }

    /// `setValid`, `setInvalid`, `push_front`, `pop_front`.
    fn header_statement(
        &mut self,
        scope: &Rc<Scope>,
        place: &Place,
        method: &Name,
        args: &[Arg],
        out: &mut Block,
    ) -> Res<()> {
        if !place.writable {
            return fault(method.span, "this header can only be read (it is an `in` parameter)");
        }
        let slot = place.slot;
        let set = |value| Stmt::Set { slot, value: ir::Expr::Const(value) };
        match (&place.ty, &*method.text) {
            (Type::Header(_), "setValid") => out.push(set(1)),
            (Type::Header(_), "setInvalid") => out.push(set(0)),
            (Type::Stack(element, count), "push_front" | "pop_front") => {
                let [arg] = args else { return fault(method.span, "expected one number") };
                let by = self.count(scope, &arg.value)?.min(*count as usize) as i32;
                let by = if &*method.text == "push_front" { by } else { -by };
                out.push(Stmt::Shift { stack: slot, size: element.slots, count: *count, by });
            }
            (ty, text) => return no_such_method(method.span, &ty.to_string(), text),
        }
        Ok(())
    }

    /// A call that gives a scalar.
    pub(super) fn call_value(
        &mut self,
        scope: &Rc<Scope>,
        callee: &Expr,
        types: &[TypeExpr],
        args: &[Arg],
        span: Span,
    ) -> Res<Typed> {
        if let ExprKind::Path(name) = &callee.kind {
            return match (scope.find(&name.text), &*name.text) {
                (Some((Binding::Function(decl), home)), _) => {
                    let ty = self.resolve(&home, &decl.result)?;
                    let result = (ty != Type::Void).then(|| self.allocate(ty.clone()));
                    let value = match &result {
                        Some(place) if ty.is_scalar() => ir::Expr::Slot(place.slot),
                        Some(_) => {
                            let message = format!("a function that gives {ty} is not supported");
                            return fault(span, message);
                        }
                        None => ir::Expr::Const(0),
                    };
                    let mut out = Block::new();
                    let (name, params) = (&decl.name, &decl.params);
                    let body = &decl.body;
                    self.inline(scope, &home, name, params, args, body, result, span, &mut out)?;
                    Ok((ir::Expr::Do(Box::new((out, value))), ty))
                }
                (Some((Binding::Action(_), _)), _) => fault(span, "an action gives no value"),
                (Some(_), _) => fault(name.span, format!("`{}` can't be called", name.text)),
                (None, "min" | "max") => self.extreme(scope, &name.text, args, span),
                (None, "sizeInBits" | "sizeInBytes") => self.size_of(scope, name, args, span),
                (None, text) => unknown(name.span, text),
            };
        }
        let ExprKind::Member(object, method) = &callee.kind else {
            return fault(span, "this can't be called");
        };
        if let Some(place) = self.place(scope, object)? {
            return match (&place.ty, &*method.text) {
                (Type::Header(_), "isValid") => Ok((ir::Expr::Slot(place.slot), Type::Bool)),
                (ty, text) => no_such_method(method.span, &ty.to_string(), text),
            };
        }
        let ExprKind::Path(name) = &object.kind else {
            return fault(span, "this can't be called");
        };
        match scope.get(name)? {
            Binding::Packet => self.packet_value(scope, method, types),
            Binding::Extern(object) => self.extern_value(scope, &object, method, args, span),
            Binding::Table(_) => {
                fault(span, "write `table.apply().hit` or `table.apply().miss` here")
            }
            _ => no_such_method(method.span, &format!("`{}`", name.text), &method.text),
        }
    }

    /// `table.apply().hit`, `.miss`, and a field of `packet.lookahead<header>()`.
    pub(super) fn call_member(
        &mut self,
        scope: &Rc<Scope>,
        callee: &Expr,
        types: &[TypeExpr],
        name: &Name,
        span: Span,
    ) -> Res<Typed> {
        if let Some(table) = self.applied_table(scope, callee)? {
            let hit = self.code.tables[table as usize].hit;
            let value = match &*name.text {
                "hit" => ir::Expr::Slot(hit),
                "miss" => same(hit, 0),
                _ => return fault(name.span, "after apply() comes hit, miss or action_run"),
            };
            let block = vec![Stmt::Apply(table)];
            return Ok((ir::Expr::Do(Box::new((block, value))), Type::Bool));
        }
        self.lookahead_field(scope, callee, types, name, span)
    }

    /// `min(a, b)` and `max(a, b)`.
    fn extreme(&mut self, scope: &Rc<Scope>, name: &str, args: &[Arg], span: Span) -> Res<Typed> {
        let [left, right] = args else { return fault(span, format!("{name} takes two values")) };
        let a = self.scalar(scope, &left.value)?;
        let b = self.scalar(scope, &right.value)?;
        let ty = if a.1 == Type::AnyInt { b.1.clone() } else { a.1.clone() };
        let a = convert(a, &ty, left.value.span)?;
        let b = convert(b, &ty, right.value.span)?;
        let (op, width) = match (&ty, name) {
            (Type::Bit(width), "min") => (Op::Min, *width),
            (Type::Bit(width), _) => (Op::Max, *width),
            (Type::Int(width), "min") => (Op::MinSigned, *width),
            (Type::Int(width), _) => (Op::MaxSigned, *width),
            _ => return fault(span, format!("{name} has no meaning for {ty}")),
        };
        Ok((operation(op, width, a, b), ty))
    }

    /// `sizeInBits(x)` and `sizeInBytes(x)`.
    fn size_of(&mut self, scope: &Rc<Scope>, name: &Name, args: &[Arg], span: Span) -> Res<Typed> {
        let [arg] = args else { return fault(span, "expected one header") };
        let data = self.data(scope, &arg.value)?;
        let bits: u128 = data.fields.iter().map(|f| u128::from(f.width)).sum();
        let size = if &*name.text == "sizeInBits" { bits } else { bits.div_ceil(8) };
        Ok((ir::Expr::Const(size), Type::Bit(32)))
    }

    /// A call whose value is a struct or header: only `lookahead` and `port_metadata_unpack`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn composite_call(
        &mut self,
        scope: &Rc<Scope>,
        target: &Place,
        callee: &Expr,
        types: &[TypeExpr],
        span: Span,
        out: &mut Block,
    ) -> Res<()> {
        match &callee.kind {
            ExprKind::Member(_, method) if &*method.text == "lookahead" => {
                self.lookahead_into(scope, target, types, span, out)
            }
            ExprKind::Path(name) if &*name.text == "port_metadata_unpack" => {
                self.port_metadata(scope, target, types, span, out)
            }
            _ => fault(span, format!("a call that gives {} is not supported", target.ty)),
        }
    }

    /// The extern object that an argument names.
    pub(super) fn extern_arg(&self, scope: &Rc<Scope>, arg: &Expr) -> Res<Extern> {
        if let ExprKind::Path(name) = &arg.kind
            && let Binding::Extern(object) = scope.get(name)?
        {
            return Ok(object);
        }
        fault(arg.span, "expected the name of an extern object")
    }
}
