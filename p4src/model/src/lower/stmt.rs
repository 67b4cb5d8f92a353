//! Statements.

use std::rc::Rc;

use super::data::list_items;
use super::scope::{Binding, Place, Scope};
use super::{Lowerer, Stage};
use crate::ir::{self, Block, Op};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{Expr, ExprKind, Stmt, StmtKind, SwitchCase, SwitchLabel};
use crate::types::Type;

/// Metadata of the architecture that the model does not act on: writing them is refused.
const UNSUPPORTED_FIELDS: &[&str] = &[
    "deflect_on_drop",
    "mcast_grp_b",
    "level1_exclusion_id",
    "level2_exclusion_id",
    "capture_tstamp_on_tx",
    "update_delay_on_tx",
    "coalesce_flush",
    "coalesce_length",
];

impl Lowerer {
    /// The statements in a scope of their own.
    pub(super) fn block(&mut self, scope: &Rc<Scope>, stmts: &[Stmt]) -> Res<Block> {
        let inner = Scope::inside(scope);
        let mut out = Block::new();
        for stmt in stmts {
            self.statement(&inner, stmt, &mut out)?;
        }
        Ok(out)
    }

    pub(super) fn statement(&mut self, scope: &Rc<Scope>, stmt: &Stmt, out: &mut Block) -> Res<()> {
        match &stmt.kind {
            StmtKind::Empty => Ok(()),
            StmtKind::Declare(decl) => self.declare(scope, decl, out),
            StmtKind::Block(stmts) => {
                out.extend(self.block(scope, stmts)?);
                Ok(())
            }
            StmtKind::Assign(target, value) => {
                let place = self.target(scope, target)?;
                self.assign(scope, &place, value, out)
            }
            StmtKind::Call(call) => {
                let ExprKind::Call(callee, types, args) = &call.kind else {
                    return fault(stmt.span, "expected a call");
                };
                self.call_statement(scope, callee, types, args, stmt.span, out)
            }
            StmtKind::If(condition, then, otherwise) => {
                self.only_in(
                    &[Stage::Control, Stage::Deparser, Stage::StatefulAlu],
                    stmt.span,
                    "`if` (use select instead)",
                )?;
                let condition = self.typed(scope, condition, &Type::Bool)?;
                let then = self.block(scope, std::slice::from_ref(then))?;
                let otherwise = match otherwise {
                    Some(stmt) => self.block(scope, std::slice::from_ref(stmt))?,
                    None => Block::new(),
                };
                match condition {
                    ir::Expr::Const(0) => out.extend(otherwise),
                    ir::Expr::Const(_) => out.extend(then),
                    condition => out.push(ir::Stmt::If { condition, then, otherwise }),
                }
                Ok(())
            }
            StmtKind::Switch(subject, cases) => {
                self.only_in(&[Stage::Control], stmt.span, "`switch`")?;
                self.switch(scope, subject, cases, out)
            }
            StmtKind::Return(value) => {
                match (value, self.result.clone()) {
                    (None, None) => {}
                    (Some(value), Some(result)) => self.assign(scope, &result, value, out)?,
                    (Some(value), None) => {
                        return fault(value.span, "only a function returns a value");
                    }
                    (None, Some(_)) => return fault(stmt.span, "this function returns a value"),
                }
                out.push(ir::Stmt::Return);
                Ok(())
            }
            StmtKind::Exit => {
                self.only_in(&[Stage::Control], stmt.span, "`exit`")?;
                out.push(ir::Stmt::Exit);
                Ok(())
            }
        }
    }

    /// The place that an assignment writes.
    pub(super) fn target(&mut self, scope: &Rc<Scope>, target: &Expr) -> Res<Place> {
        if let ExprKind::Member(_, name) = &target.kind
            && UNSUPPORTED_FIELDS.contains(&&*name.text)
        {
            return fault(name.span, format!("`{}` is not supported by the model", name.text));
        }
        match self.place(scope, target)? {
            Some(place) if place.writable => Ok(place),
            Some(_) => fault(target.span, "this can only be read (it is an `in` parameter)"),
            None => fault(target.span, "this can't be assigned"),
        }
    }

    /// Stores the value of `value` in `target`.
    pub(super) fn assign(
        &mut self,
        scope: &Rc<Scope>,
        target: &Place,
        value: &Expr,
        out: &mut Block,
    ) -> Res<()> {
        if target.ty.is_scalar() {
            let ty = target.bits.map_or(target.ty.clone(), |(_, width)| Type::Bit(width));
            let value = self.typed(scope, value, &ty)?;
            store(target, value, out);
            return Ok(());
        }
        if let Some(from) = self.place(scope, value)? {
            if from.ty != target.ty {
                let message = format!("expected {}, found {}", target.ty, from.ty);
                return fault(value.span, message);
            }
            copy(target, &from, out);
            return Ok(());
        }
        match &value.kind {
            ExprKind::Cast(ty, inner) => {
                let ty = self.resolve(scope, ty)?;
                if ty != target.ty {
                    return fault(value.span, format!("expected {}, found {ty}", target.ty));
                }
                self.assign(scope, target, inner, out)
            }
            ExprKind::List(_) | ExprKind::Record(_) => self.assign_list(scope, target, value, out),
            ExprKind::Call(callee, types, _) => {
                self.composite_call(scope, target, callee, types, value.span, out)
            }
            _ => fault(value.span, format!("expected a value of type {}", target.ty)),
        }
    }

    /// All items are evaluated before the first is stored, so a list may name its target.
    fn assign_list(
        &mut self,
        scope: &Rc<Scope>,
        target: &Place,
        value: &Expr,
        out: &mut Block,
    ) -> Res<()> {
        let copy_of = self.allocate(target.ty.clone());
        let mut slot = copy_of.slot;
        if let Type::Header(_) = target.ty {
            out.push(ir::Stmt::Set { slot, value: ir::Expr::Const(1) });
            slot += 1;
        }
        for (item, ty) in list_items(value, &target.ty)? {
            let part = Place::whole(ty, slot);
            slot += part.ty.slots();
            self.assign(scope, &part, item, out)?;
        }
        copy(target, &copy_of, out);
        Ok(())
    }

    /// `switch (table.apply().action_run) { action: { ... } default: { ... } }`
    fn switch(
        &mut self,
        scope: &Rc<Scope>,
        subject: &Expr,
        cases: &[SwitchCase],
        out: &mut Block,
    ) -> Res<()> {
        let table = match &subject.kind {
            ExprKind::Member(call, name) if &*name.text == "action_run" => match &call.kind {
                ExprKind::Call(callee, _, _) => self.applied_table(scope, callee)?,
                _ => None,
            },
            _ => None,
        };
        let Some(table) = table else {
            let message = "the model switches on `table.apply().action_run` only; use if and else";
            return fault(subject.span, message);
        };
        let names: Vec<String> =
            self.code.tables[table as usize].actions.iter().map(|a| a.name.clone()).collect();
        let mut targets = vec![None; names.len()];
        let mut blocks: Vec<Block> = Vec::new();
        let mut waiting: Vec<Label> = Vec::new();
        let mut default = None;
        for case in cases {
            if let SwitchLabel::Default(span) = case.label
                && default.is_some()
            {
                return fault(span, "a second `default`");
            }
            waiting.push(self.label(scope, &case.label, &names, &targets)?);
            let Some(body) = &case.body else { continue };
            let index = blocks.len() as u32;
            blocks.push(self.block(scope, body)?);
            for label in waiting.drain(..) {
                match label {
                    Label::Action(action) => targets[action] = Some(index),
                    Label::Default => default = Some(index),
                }
            }
        }
        let cases = targets.into_iter().map(|target| target.or(default)).collect();
        out.push(ir::Stmt::Apply(table));
        out.push(ir::Stmt::Switch { table, cases, blocks });
        Ok(())
    }

    fn label(
        &self,
        scope: &Rc<Scope>,
        label: &SwitchLabel,
        names: &[String],
        seen: &[Option<u32>],
    ) -> Res<Label> {
        let SwitchLabel::Value(value) = label else { return Ok(Label::Default) };
        let ExprKind::Path(name) = &value.kind else {
            return fault(value.span, "a case names an action of the table");
        };
        let Binding::Action(decl) = scope.get(name)? else {
            return fault(name.span, format!("`{}` is no action", name.text));
        };
        let short = |full: &str| full.rsplit('.').next().unwrap_or(full).to_owned();
        let wanted = short(&self.control_name(&decl.annotations, &decl.name));
        match names.iter().position(|full| short(full) == wanted) {
            Some(index) if seen[index].is_some() => {
                fault(name.span, format!("a second case for `{}`", name.text))
            }
            Some(index) => Ok(Label::Action(index)),
            None => fault(name.span, format!("`{}` is no action of this table", name.text)),
        }
    }
}

enum Label {
    Default,
    Action(usize),
}

/// Stores a scalar.
pub(super) fn store(target: &Place, value: ir::Expr, out: &mut Block) {
    let slot = target.slot;
    out.push(match target.bits {
        Some((low, width)) => ir::Stmt::SetBits { slot, low, width, value },
        None => ir::Stmt::Set { slot, value },
    });
}

/// Copies one place to another of the same type.
pub(super) fn copy(to: &Place, from: &Place, out: &mut Block) {
    if from.bits.is_some() || to.bits.is_some() {
        let value = match from.bits {
            Some((low, width)) => super::expr::slice(ir::Expr::Slot(from.slot), low, width),
            None => ir::Expr::Slot(from.slot),
        };
        store(to, value, out);
    } else if to.slot != from.slot {
        let count = to.ty.slots();
        out.push(ir::Stmt::Copy { to: to.slot, from: from.slot, count });
    }
}

/// Makes all headers of a place invalid.
pub(super) fn invalidate(place: &Place, out: &mut Block) {
    let clear = |slot, out: &mut Block| {
        out.push(ir::Stmt::Set { slot, value: ir::Expr::Const(0) });
    };
    match &place.ty {
        Type::Header(_) => clear(place.slot, out),
        Type::Struct(fields) => {
            for field in &fields.fields {
                let part = Place::whole(field.ty.clone(), place.slot + field.offset);
                invalidate(&part, out);
            }
        }
        Type::Stack(element, count) => {
            clear(place.slot, out);
            (0..*count).for_each(|index| clear(place.slot + 1 + index * element.slots, out));
        }
        _ => {}
    }
}

/// `a == b` for two slots that hold the same type.
pub(super) fn same(slot: u32, value: u128) -> ir::Expr {
    ir::Expr::Op {
        op: Op::Eq,
        width: crate::types::MAX_WIDTH,
        a: Box::new(ir::Expr::Slot(slot)),
        b: Box::new(ir::Expr::Const(value)),
    }
}

/// The error of a call that can't stand where it stands.
pub(super) fn no_such_method<T>(span: Span, object: &str, method: &str) -> Res<T> {
    fault(span, format!("{object} has no method `{method}` that the model supports"))
}
