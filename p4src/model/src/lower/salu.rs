//! Register actions, and the limits of the stateful ALU that runs them.
//!
//! A stateful ALU reads one element, evaluates at most two comparisons of it, computes at most two
//! values with one operation each, writes back and outputs one word. A body beyond that is
//! refused, as the hardware's compiler would:
//!
//! - at most two different comparisons, each of at most one register value, one packet or metadata
//!   value, and a constant;
//! - at most two different packet or metadata values (32 bits each) in the whole body;
//! - each half of the element gets at most two different values, chosen by the comparisons, each by
//!   one operation on at most one register value and one other operand;
//! - no value is read after it was written, except to return it;
//! - one output: the old or new half, a packet value, or (if the element is a single value) what
//!   the idle second half computes;
//! - no local variables, shifts or slices of register values.

use std::rc::Rc;

use super::Lowerer;
use super::Stage;
use super::expr::Typed;
use super::scope::{Extern, Scope};
use crate::ir::{self, Expr as Value, Op, Slot, Stmt};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{Expr, InstanceDecl, TypeExpr};
use crate::types::Type;

/// Instructions that a stateful ALU holds: the register actions of one register.
const MAX_ACTIONS: usize = 4;
const MAX_COMPARISONS: usize = 2;
const MAX_INPUTS: usize = 2;
/// Predicated operations of one half.
const MAX_UPDATES: usize = 2;

impl Lowerer {
    /// `RegisterAction<T, I, U>(register) name = { void apply(inout T value, out U rv) {...} };`
    pub(super) fn register_action(
        &mut self,
        scope: &Rc<Scope>,
        decl: &InstanceDecl,
        types: &[TypeExpr],
        args: &[&Expr],
    ) -> Res<Extern> {
        let span = decl.ty.span;
        self.only_in(&[Stage::Control], span, "a register action")?;
        let ty = self.type_arg(scope, decl, types, 0)?;
        let ([register], [apply]) = (args, &decl.methods[..]) else {
            return fault(span, "RegisterAction<T, I, U>(register) name = { void apply(...) {} };");
        };
        let Extern::Register(index) = self.extern_arg(scope, register)? else {
            return fault(register.span, "expected a Register");
        };
        let register = &mut self.code.registers[index as usize];
        register.actions += 1;
        if register.actions > MAX_ACTIONS {
            let message = format!(
                "register {} has more than {MAX_ACTIONS} register actions: a stateful ALU holds \
                 {MAX_ACTIONS} instructions",
                register.name
            );
            return fault(span, message);
        }
        let lanes = register.lanes.len() as u32;
        if ty.slots() != lanes {
            return fault(span, format!("the register has {lanes} values, {ty} another number"));
        }
        let widths: Vec<u16> = match &ty {
            Type::Struct(fields) => fields.fields.iter().filter_map(|f| f.ty.width()).collect(),
            ty => ty.width().into_iter().collect(),
        };
        if !widths.iter().eq(register.lanes.iter().map(|lane| &lane.1)) {
            return fault(span, format!("the register does not hold {ty}"));
        }
        let (Some(first), true) = (apply.params.first(), apply.params.len() <= 2) else {
            return fault(apply.name.span, "apply(inout T value, out U rv)");
        };
        let value = self.allocate(ty);
        let inner = Scope::inside(scope);
        self.declare_place(&inner, &first.name, value.clone())?;
        let result = match apply.params.get(1) {
            Some(param) => {
                let ty = self.resolve(scope, &param.ty)?;
                if ty.width().is_none_or(|width| width > 32) {
                    return fault(param.name.span, "a stateful ALU outputs at most 32 bits");
                }
                let place = self.allocate(ty);
                self.declare_place(&inner, &param.name, place.clone())?;
                Some(place)
            }
            None => None,
        };
        self.stage = Stage::StatefulAlu;
        let body = self.block(&inner, &apply.body);
        self.stage = Stage::Control;
        let body = body?;
        let mut limits = Limits {
            span: apply.name.span,
            value: value.slot,
            lanes,
            result: result.as_ref().map(|place| place.slot),
            ..Limits::default()
        };
        limits.block(&body)?;
        limits.finish()?;
        let output = result.as_ref().map_or(Type::Void, |place| place.ty.clone());
        let result = result.map(|place| place.slot);
        let action = ir::RegisterAction { register: index, value: value.slot, result, body };
        self.code.register_actions.push(action);
        Ok(Extern::RegisterAction(self.code.register_actions.len() as u32 - 1, output))
    }

    /// `action.execute(index)`
    pub(super) fn execute(
        &mut self,
        scope: &Rc<Scope>,
        action: u32,
        output: &Type,
        index: &Expr,
        span: Span,
    ) -> Res<Typed> {
        self.only_in(&[Stage::Control], span, "a register")?;
        let (index, ty) = self.scalar(scope, index)?;
        if !matches!(ty, Type::Bit(_) | Type::AnyInt) {
            return fault(span, format!("an index is a bit<W>, not {ty}"));
        }
        let code = &self.code.register_actions[action as usize];
        let (result, register) = (code.result, code.register);
        let register = &mut self.code.registers[register as usize];
        if *register.egress.get_or_insert(self.egress) != self.egress {
            let message =
                format!("register {} can't be used in ingress and egress both", register.name);
            return fault(span, message);
        }
        let value = match result {
            Some(slot) => Value::Slot(slot),
            None => Value::Const(0),
        };
        let block = vec![Stmt::Register { action, index, span }];
        Ok((Value::Do(Box::new((block, value))), output.clone()))
    }
}

/// What a body needs, collected while walking it.
#[derive(Default)]
struct Limits {
    span: Span,
    value: Slot,
    lanes: u32,
    result: Option<Slot>,
    comparisons: Vec<Value>,
    inputs: Vec<Value>,
    updates: [Vec<Value>; 2],
    /// What the result is set to, and whether the register value in it is the new one.
    outputs: Vec<(Value, bool)>,
    written: [bool; 2],
}

impl Limits {
    fn refuse<T>(&self, what: &str) -> Res<T> {
        fault(self.span, format!("this register action does not fit a stateful ALU: {what}"))
    }

    fn block(&mut self, block: &[Stmt]) -> Res<()> {
        block.iter().try_for_each(|stmt| self.statement(stmt))
    }

    fn statement(&mut self, stmt: &Stmt) -> Res<()> {
        match stmt {
            Stmt::If { condition, then, otherwise } => {
                self.condition(condition)?;
                let before = self.written;
                self.block(then)?;
                let after = std::mem::replace(&mut self.written, before);
                self.block(otherwise)?;
                self.written = [0, 1].map(|lane| self.written[lane] || after[lane]);
                Ok(())
            }
            Stmt::Set { slot, value } => self.set(*slot, value),
            Stmt::Copy { to, from, count } => {
                (0..*count).try_for_each(|i| self.set(to + i, &Value::Slot(from + i)))
            }
            _ => self.refuse("only `if` and assignments are possible"),
        }
    }

    fn lane(&self, slot: Slot) -> Option<usize> {
        (self.value..self.value + self.lanes).contains(&slot).then(|| (slot - self.value) as usize)
    }

    fn set(&mut self, slot: Slot, value: &Value) -> Res<()> {
        if let Value::Choose(parts) = value {
            self.condition(&parts[0])?;
            self.set(slot, &parts[1])?;
            return self.set(slot, &parts[2]);
        }
        if Some(slot) == self.result {
            return self.output(value);
        }
        let Some(lane) = self.lane(slot) else {
            return self.refuse("it writes more than its value and result (no local variables)");
        };
        self.operation(value)?;
        if *value != Value::Slot(slot) && !self.updates[lane].contains(value) {
            self.updates[lane].push(value.clone());
        }
        self.written[lane] = true;
        Ok(())
    }

    fn output(&mut self, value: &Value) -> Res<()> {
        let mut new = false;
        if let Value::Slot(slot) = value
            && let Some(lane) = self.lane(*slot)
        {
            new = self.written[lane];
        } else {
            self.operation(value)?;
        }
        let output = (value.clone(), new);
        if *value != Value::Const(0) && !self.outputs.contains(&output) {
            self.outputs.push(output);
        }
        Ok(())
    }

    /// One operation with at most one register value and one other operand.
    fn operation(&mut self, value: &Value) -> Res<()> {
        match value {
            Value::Op { op, a, b, .. } => {
                let possible = matches!(
                    op,
                    Op::Add
                        | Op::Sub
                        | Op::SatAdd
                        | Op::SatSub
                        | Op::SatAddSigned
                        | Op::SatSubSigned
                        | Op::And
                        | Op::Or
                        | Op::Xor
                        | Op::Min
                        | Op::Max
                        | Op::MinSigned
                        | Op::MaxSigned
                );
                if !possible {
                    return self.refuse("it has no such operation");
                }
                let memories = usize::from(self.leaf(a)?) + usize::from(self.leaf(b)?);
                let constant = |e: &Value| usize::from(matches!(e, Value::Const(_)));
                let constants = constant(a) + constant(b);
                if memories == 2 || memories + constants == 0 {
                    return self.refuse(
                        "an operation takes at most one register value and one other operand",
                    );
                }
                Ok(())
            }
            value => self.leaf(value).map(|_| ()),
        }
    }

    /// An operand; true if it is a register value.
    fn leaf(&mut self, value: &Value) -> Res<bool> {
        match value {
            Value::Const(_) => Ok(false),
            Value::Complement { value, .. } => self.leaf(value),
            Value::Slot(slot) if self.lane(*slot).is_some() => {
                if self.lane(*slot).is_some_and(|lane| self.written[lane]) {
                    return self.refuse("it reads a value after writing it");
                }
                Ok(true)
            }
            Value::Slot(slot) if Some(*slot) == self.result => self.refuse("it reads its result"),
            Value::Slot(_) => self.input(value),
            Value::Slice { value: inner, .. } => match **inner {
                Value::Slot(slot) if self.lane(slot).is_none() => self.input(value),
                _ => self.refuse("register values can't be sliced"),
            },
            _ => self.refuse("an operand is a register value, a field or a constant"),
        }
    }

    fn input(&mut self, value: &Value) -> Res<bool> {
        if !self.inputs.contains(value) {
            self.inputs.push(value.clone());
        }
        Ok(false)
    }

    fn condition(&mut self, value: &Value) -> Res<()> {
        match value {
            Value::LogicAnd(a, b) | Value::LogicOr(a, b) => {
                self.condition(a)?;
                self.condition(b)
            }
            Value::LogicNot(a) => self.condition(a),
            Value::Const(_) => Ok(()),
            Value::Op { op, width, a, b } => {
                // a <= b is not b < a, a != b is not a == b: one unit serves both.
                let (op, a, b) = match op {
                    Op::Le => (Op::Lt, b, a),
                    Op::LeSigned => (Op::LtSigned, b, a),
                    Op::Ne => (Op::Eq, a, b),
                    Op::Eq | Op::Lt | Op::LtSigned => (*op, a, b),
                    _ => return self.refuse("a condition is a comparison"),
                };
                let mut terms = Vec::new();
                self.terms(a, &mut terms)?;
                self.terms(b, &mut terms)?;
                let memories = terms.iter().filter(|&&memory| memory).count();
                if memories > 1 || terms.len() - memories > 1 {
                    return self.refuse("a comparison takes one register value and one field");
                }
                self.compare(Value::Op { op, width: *width, a: a.clone(), b: b.clone() });
                Ok(())
            }
            other => {
                self.leaf(other)?;
                self.compare(other.clone());
                Ok(())
            }
        }
    }

    fn compare(&mut self, comparison: Value) {
        if !self.comparisons.contains(&comparison) {
            self.comparisons.push(comparison);
        }
    }

    /// The terms of a sum without its constants; true for register values.
    fn terms(&mut self, value: &Value, out: &mut Vec<bool>) -> Res<()> {
        match value {
            Value::Const(_) => Ok(()),
            Value::Op { op: Op::Add | Op::Sub, a, b, .. } => {
                self.terms(a, out)?;
                self.terms(b, out)
            }
            Value::Negate { value, .. } => self.terms(value, out),
            leaf => {
                out.push(self.leaf(leaf)?);
                Ok(())
            }
        }
    }

    fn finish(&self) -> Res<()> {
        if self.comparisons.len() > MAX_COMPARISONS {
            return self.refuse(&format!(
                "{} different comparisons, {MAX_COMPARISONS} are possible",
                self.comparisons.len()
            ));
        }
        if self.inputs.len() > MAX_INPUTS {
            return self.refuse(&format!(
                "{} packet or metadata values, {MAX_INPUTS} are possible",
                self.inputs.len()
            ));
        }
        if self.updates.iter().any(|updates| updates.len() > MAX_UPDATES) {
            return self.refuse("a value is computed in more than two ways");
        }
        let computed = |value: &Value| !matches!(value, Value::Slot(_) | Value::Slice { .. });
        let by_alu = self.outputs.iter().filter(|(value, _)| computed(value)).count();
        match (self.outputs.len(), by_alu) {
            (0, _) | (1, 0) => Ok(()),
            (all, by_alu) if self.lanes == 1 && all == by_alu && all <= MAX_UPDATES => Ok(()),
            (_, 0) => self.refuse("it has more than one output"),
            _ => self.refuse("its output needs an operation of its own, but both are in use"),
        }
    }
}
