//! One packet may access a register once: counts the accesses along every path of a control.
//!
//! A path is a way through the `if`s and the actions that tables may choose. What counts is how
//! often the *text* reaches a register, as for a compiler: two tables that never hit together
//! count twice.

use std::collections::HashMap;

use crate::ir::{Block, Code, Expr, Stmt};
use crate::source::{Res, Span, fault};

/// Accesses of each register on the worst path, and where the last one stands.
type Accesses = HashMap<u32, (usize, Span)>;

/// Refuses a control in which a packet may access a register twice.
pub(super) fn check(code: &Code, control: &Block) -> Res<()> {
    let found = Walker { code }.block(control);
    let twice = found.iter().filter(|(_, (count, _))| *count > 1).min_by_key(|(id, _)| **id);
    match twice {
        None => Ok(()),
        Some((&register, &(_, span))) => fault(
            span,
            format!(
                "a packet may access register {} twice; a stateful ALU allows one access, so merge \
                 the accesses or put them in exclusive branches",
                code.registers[register as usize].name
            ),
        ),
    }
}

struct Walker<'a> {
    code: &'a Code,
}

impl Walker<'_> {
    fn block(&self, block: &[Stmt]) -> Accesses {
        let mut sum = Accesses::new();
        for stmt in block {
            add(&mut sum, self.statement(stmt));
        }
        sum
    }

    fn statement(&self, stmt: &Stmt) -> Accesses {
        match stmt {
            Stmt::Set { value, .. } | Stmt::SetBits { value, .. } | Stmt::Do(value) => {
                self.expr(value)
            }
            Stmt::If { condition, then, otherwise } => {
                let mut sum = self.expr(condition);
                add(&mut sum, worst([self.block(then), self.block(otherwise)]));
                sum
            }
            Stmt::Apply(table) => {
                let table = &self.code.tables[*table as usize];
                let mut sum = Accesses::new();
                for key in &table.keys {
                    add(&mut sum, self.expr(&key.value));
                }
                add(&mut sum, worst(table.actions.iter().map(|a| self.block(&a.body))));
                sum
            }
            Stmt::Switch { blocks, .. } => worst(blocks.iter().map(|b| self.block(b))),
            Stmt::Scope { body, after } => {
                let mut sum = self.block(body);
                add(&mut sum, self.block(after));
                sum
            }
            Stmt::Call(body) => self.block(&self.code.bodies[*body as usize]),
            Stmt::Register { action, index, span } => {
                let mut sum = self.expr(index);
                let register = self.code.register_actions[*action as usize].register;
                add(&mut sum, Accesses::from([(register, (1, *span))]));
                sum
            }
            Stmt::Count { index, .. } => self.expr(index),
            _ => Accesses::new(),
        }
    }

    fn expr(&self, expr: &Expr) -> Accesses {
        let mut sum = Accesses::new();
        match expr {
            Expr::Slice { value, .. }
            | Expr::LogicNot(value)
            | Expr::Complement { value, .. }
            | Expr::Negate { value, .. }
            | Expr::SignExtend { value, .. }
            | Expr::Element { index: value, .. } => sum = self.expr(value),
            Expr::Concat { high: a, low: b, .. }
            | Expr::Op { a, b, .. }
            | Expr::LogicAnd(a, b)
            | Expr::LogicOr(a, b) => {
                sum = self.expr(a);
                add(&mut sum, self.expr(b));
            }
            Expr::Choose(parts) => {
                sum = self.expr(&parts[0]);
                add(&mut sum, worst([self.expr(&parts[1]), self.expr(&parts[2])]));
            }
            Expr::Hash { data, .. } | Expr::ChecksumUpdate { data, .. } => {
                for field in &data.fields {
                    add(&mut sum, self.expr(&field.value));
                }
            }
            Expr::Do(inner) => {
                sum = self.block(&inner.0);
                add(&mut sum, self.expr(&inner.1));
            }
            Expr::Const(_)
            | Expr::Slot(_)
            | Expr::Is { .. }
            | Expr::Random { .. }
            | Expr::Lookahead { .. }
            | Expr::ChecksumGet(_) => {}
        }
        sum
    }
}

/// One after the other.
fn add(sum: &mut Accesses, more: Accesses) {
    for (register, (count, span)) in more {
        let entry = sum.entry(register).or_insert((0, span));
        *entry = (entry.0 + count, span);
    }
}

/// One or the other.
fn worst(branches: impl IntoIterator<Item = Accesses>) -> Accesses {
    let mut out = Accesses::new();
    for branch in branches {
        for (register, found) in branch {
            let entry = out.entry(register).or_insert(found);
            if found.0 > entry.0 {
                *entry = found;
            }
        }
    }
    out
}
