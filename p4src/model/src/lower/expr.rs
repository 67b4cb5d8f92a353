//! Expressions: types checked, constants computed.

use std::rc::Rc;

use super::scope::{Binding, Place, Scope};
use super::{Lowerer, Stage};
use crate::ir::{self, Op};
use crate::ops;
use crate::source::lexer::Number;
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{BinaryOp, Expr, ExprKind, Name, UnaryOp};
use crate::types::{MAX_WIDTH, Type, mask, signed};

/// A scalar and its type.
pub(super) type Typed = (ir::Expr, Type);

impl Lowerer {
    /// The value of an expression that must be known at load time.
    pub(super) fn constant(&mut self, scope: &Rc<Scope>, expr: &Expr) -> Res<(u128, Type)> {
        match self.scalar(scope, expr)? {
            (ir::Expr::Const(value), ty) => Ok((value, ty)),
            _ => fault(expr.span, "this must be a constant"),
        }
    }

    pub(super) fn constant_of(&mut self, scope: &Rc<Scope>, expr: &Expr, ty: &Type) -> Res<u128> {
        match self.typed(scope, expr, ty)? {
            ir::Expr::Const(value) => Ok(value),
            _ => fault(expr.span, "this must be a constant"),
        }
    }

    /// The expression as a value of type `ty`.
    pub(super) fn typed(&mut self, scope: &Rc<Scope>, expr: &Expr, ty: &Type) -> Res<ir::Expr> {
        let value = self.scalar(scope, expr)?;
        convert(value, ty, expr.span)
    }

    pub(super) fn scalar(&mut self, scope: &Rc<Scope>, expr: &Expr) -> Res<Typed> {
        let span = expr.span;
        if let Some(place) = self.place(scope, expr)? {
            return self.load(&place, span);
        }
        match &expr.kind {
            ExprKind::Number(number) => literal(*number, span),
            ExprKind::Bool(value) => Ok((ir::Expr::Const(u128::from(*value)), Type::Bool)),
            ExprKind::Path(name) => match scope.get(name)? {
                Binding::Const(value, ty) => Ok((ir::Expr::Const(value), ty)),
                _ => fault(span, format!("`{}` has no value", name.text)),
            },
            ExprKind::Member(base, name) => self.member(scope, base, name, span),
            ExprKind::Index(base, index) => {
                fault(base.span.max_line(index.span), "an element is no single value")
            }
            ExprKind::Slice(base, high, low) => {
                let (value, ty) = self.scalar(scope, base)?;
                let (low, width) = self.slice_bounds(scope, high, low, &ty)?;
                Ok((slice(value, low, width), Type::Bit(width)))
            }
            ExprKind::Unary(op, operand) => self.unary(scope, *op, operand, span),
            ExprKind::Binary(op, left, right) => self.binary(scope, *op, left, right, span),
            ExprKind::Ternary(condition, then, otherwise) => {
                self.choose(scope, condition, then, otherwise)
            }
            ExprKind::Cast(ty, operand) => {
                let ty = self.resolve(scope, ty)?;
                let value = self.scalar(scope, operand)?;
                cast(value, &ty, span)
            }
            ExprKind::Call(callee, types, args) => {
                self.call_value(scope, callee, types, args, span)
            }
            ExprKind::Text => fault(span, "a string has no place here"),
            ExprKind::List(_) | ExprKind::Record(_) => fault(span, "a list is no single value"),
            ExprKind::Mask(..) | ExprKind::Range(..) | ExprKind::Default | ExprKind::DontCare => {
                fault(span, "this belongs into a select or a table entry")
            }
            ExprKind::ErrorType => fault(span, "`error` needs a member, as in error.NoMatch"),
        }
    }

    /// The value that lies in a place.
    pub(super) fn load(&mut self, place: &Place, span: Span) -> Res<Typed> {
        if !place.ty.is_scalar() {
            return fault(span, format!("a value of type {} is no single value", place.ty));
        }
        if Some(place.slot) == self.parser_err && self.stage == Stage::Control {
            self.reads_parser_err = true;
        }
        let value = ir::Expr::Slot(place.slot);
        Ok(match place.bits {
            Some((low, width)) => (slice(value, low, width), Type::Bit(width)),
            None => (value, place.ty.clone()),
        })
    }

    /// The place an expression names, if it names one that is known at load time.
    pub(super) fn place(&mut self, scope: &Rc<Scope>, expr: &Expr) -> Res<Option<Place>> {
        match &expr.kind {
            ExprKind::Path(name) => match scope.get(name)? {
                Binding::Place(place) => Ok(Some(place)),
                _ => Ok(None),
            },
            ExprKind::Member(base, name) => {
                // `Type.member`, `table.apply().hit` and the like name no place.
                if matches!(base.kind, ExprKind::ErrorType | ExprKind::Call(..)) {
                    return Ok(None);
                }
                let Some(place) = self.place(scope, base)? else { return Ok(None) };
                match &place.ty {
                    Type::Header(fields) | Type::Struct(fields) => {
                        let Some(field) = fields.field(&name.text) else {
                            let message = format!("{} has no field `{}`", place.ty, name.text);
                            return fault(name.span, message);
                        };
                        Ok(Some(Place {
                            ty: field.ty.clone(),
                            slot: place.slot + field.offset,
                            bits: None,
                            writable: place.writable,
                        }))
                    }
                    _ => Ok(None),
                }
            }
            ExprKind::Index(base, index) => {
                let Some(place) = self.place(scope, base)? else { return Ok(None) };
                let Type::Stack(element, count) = &place.ty else {
                    return fault(expr.span, format!("{} is no stack", place.ty));
                };
                let (index, _) = self.constant(scope, index)?;
                if index >= u128::from(*count) {
                    return fault(expr.span, format!("the stack has {count} headers"));
                }
                Ok(Some(Place {
                    ty: Type::Header(element.clone()),
                    slot: place.slot + 1 + element.slots * index as u32,
                    bits: None,
                    writable: place.writable,
                }))
            }
            ExprKind::Slice(base, high, low) => {
                let Some(place) = self.place(scope, base)? else { return Ok(None) };
                let ty = place.bits.map_or(place.ty.clone(), |(_, width)| Type::Bit(width));
                let (low, width) = self.slice_bounds(scope, high, low, &ty)?;
                let inner = place.bits.map_or(0, |(low, _)| low);
                Ok(Some(Place { bits: Some((inner + low, width)), ..place }))
            }
            _ => Ok(None),
        }
    }

    fn slice_bounds(
        &mut self,
        scope: &Rc<Scope>,
        high: &Expr,
        low: &Expr,
        ty: &Type,
    ) -> Res<(u16, u16)> {
        let (Type::Bit(width) | Type::Int(width)) = *ty else {
            return fault(high.span, format!("a slice of {ty} has no meaning"));
        };
        let top = self.count(scope, high)?;
        let bottom = self.count(scope, low)?;
        if top < bottom || top >= usize::from(width) {
            let message = format!("slice [{top}:{bottom}] does not lie in bit<{width}>");
            return fault(high.span, message);
        }
        Ok((bottom as u16, (top - bottom + 1) as u16))
    }

    /// `Enum.member`, `error.member`, `table.apply().hit`, `stack.last.field`, `stack.lastIndex`.
    fn member(&mut self, scope: &Rc<Scope>, base: &Expr, name: &Name, span: Span) -> Res<Typed> {
        if let ExprKind::ErrorType = base.kind {
            return match self.errors.iter().position(|e| *e == name.text) {
                Some(index) => Ok((ir::Expr::Const(index as u128), Type::Error)),
                None => fault(name.span, format!("error.{} is not declared", name.text)),
            };
        }
        if let ExprKind::Path(path) = &base.kind
            && let Some((Binding::Type(ty), _)) = scope.find(&path.text)
        {
            let Type::Enum(def) = &ty else {
                return fault(span, format!("{ty} has no members"));
            };
            return match def.members.iter().find(|(member, _)| *member == name.text) {
                Some((_, value)) => Ok((ir::Expr::Const(*value), ty.clone())),
                None => fault(name.span, format!("{ty} has no member `{}`", name.text)),
            };
        }
        if let ExprKind::Call(callee, types, _) = &base.kind {
            return self.call_member(scope, callee, types, name, span);
        }
        if let ExprKind::Member(stack, last) = &base.kind
            && &*last.text == "last"
            && let Some(place) = self.place(scope, stack)?
            && let Type::Stack(element, count) = &place.ty
        {
            let Some(field) = element.field(&name.text) else {
                let message = format!("header {} has no field `{}`", element.name, name.text);
                return fault(name.span, message);
            };
            let index = last_index(place.slot);
            let value = ir::Expr::Element {
                stack: place.slot,
                index: Box::new(index),
                count: *count,
                size: element.slots,
                field: field.offset,
            };
            return Ok((value, field.ty.clone()));
        }
        if let Some(place) = self.place(scope, base)? {
            if let (Type::Stack(..), "lastIndex") = (&place.ty, &*name.text) {
                return Ok((last_index(place.slot), Type::Bit(32)));
            }
            return fault(name.span, format!("{} has no member `{}`", place.ty, name.text));
        }
        fault(name.span, format!("nothing here has a member `{}`", name.text))
    }

    fn unary(&mut self, scope: &Rc<Scope>, op: UnaryOp, operand: &Expr, span: Span) -> Res<Typed> {
        let (value, ty) = self.scalar(scope, operand)?;
        match (op, &ty) {
            (UnaryOp::Plus, Type::Bit(_) | Type::Int(_) | Type::AnyInt) => Ok((value, ty)),
            (UnaryOp::Not, Type::Bool) => Ok((not(value), ty)),
            (UnaryOp::Complement, Type::Bit(width) | Type::Int(width)) => {
                let width = *width;
                let value = match value {
                    ir::Expr::Const(value) => ir::Expr::Const(!value & mask(width)),
                    value => ir::Expr::Complement { value: Box::new(value), width },
                };
                Ok((value, ty))
            }
            (UnaryOp::Minus, Type::Bit(width) | Type::Int(width)) => {
                let width = *width;
                let value = match value {
                    ir::Expr::Const(value) => ir::Expr::Const(value.wrapping_neg() & mask(width)),
                    value => ir::Expr::Negate { value: Box::new(value), width },
                };
                Ok((value, ty))
            }
            (UnaryOp::Minus, Type::AnyInt) => match value {
                ir::Expr::Const(value) => Ok((ir::Expr::Const(value.wrapping_neg()), ty)),
                _ => fault(span, "this must be a constant"),
            },
            _ => fault(span, format!("this operator has no meaning for {ty}")),
        }
    }

    fn choose(
        &mut self,
        scope: &Rc<Scope>,
        condition: &Expr,
        then: &Expr,
        otherwise: &Expr,
    ) -> Res<Typed> {
        let test = self.typed(scope, condition, &Type::Bool)?;
        let then_value = self.scalar(scope, then)?;
        let other_value = self.scalar(scope, otherwise)?;
        let ty =
            if then_value.1 == Type::AnyInt { other_value.1.clone() } else { then_value.1.clone() };
        let a = convert(then_value, &ty, then.span)?;
        let b = convert(other_value, &ty, otherwise.span)?;
        Ok(match test {
            ir::Expr::Const(0) => (b, ty),
            ir::Expr::Const(_) => (a, ty),
            test => (ir::Expr::Choose(Box::new([test, a, b])), ty),
        })
    }

    fn binary(
        &mut self,
        scope: &Rc<Scope>,
        op: BinaryOp,
        left: &Expr,
        right: &Expr,
        span: Span,
    ) -> Res<Typed> {
        if let BinaryOp::LogicAnd | BinaryOp::LogicOr = op {
            let a = self.typed(scope, left, &Type::Bool)?;
            let b = self.typed(scope, right, &Type::Bool)?;
            return Ok((logic(op == BinaryOp::LogicAnd, a, b), Type::Bool));
        }
        let a = self.scalar(scope, left)?;
        let b = self.scalar(scope, right)?;
        match op {
            BinaryOp::Concat => concat(a, b, span),
            BinaryOp::Shl | BinaryOp::Shr => shift(op, a, b, span),
            _ => arithmetic(op, a, b, span),
        }
    }
}

impl Span {
    /// The later of two places.
    fn max_line(self, other: Span) -> Span {
        if (other.line, other.column) > (self.line, self.column) { other } else { self }
    }
}

/// Index of the last extracted element of a stack.
fn last_index(stack: u32) -> ir::Expr {
    ir::Expr::Op {
        op: Op::Sub,
        width: 32,
        a: Box::new(ir::Expr::Slot(stack)),
        b: Box::new(ir::Expr::Const(1)),
    }
}

fn literal(number: Number, span: Span) -> Res<Typed> {
    let Number { value, width } = number;
    match width {
        None if value <= i128::MAX as u128 => Ok((ir::Expr::Const(value), Type::AnyInt)),
        None => fault(span, "a number of 128 bits needs its width: 128w..."),
        Some((width, _)) if width > MAX_WIDTH => {
            fault(span, format!("the model computes with at most {MAX_WIDTH} bits"))
        }
        Some((width, _)) if value > mask(width) => {
            fault(span, format!("{value} does not fit in {width} bits"))
        }
        Some((width, true)) => Ok((ir::Expr::Const(value), Type::Int(width))),
        Some((width, false)) => Ok((ir::Expr::Const(value), Type::Bit(width))),
    }
}

/// A value where one of type `ty` is expected. Only constants of no width change their type.
pub(super) fn convert(value: Typed, ty: &Type, span: Span) -> Res<ir::Expr> {
    let (expr, found) = value;
    if found == *ty {
        return Ok(expr);
    }
    if let (Type::AnyInt, ir::Expr::Const(number), Type::Bit(width) | Type::Int(width)) =
        (&found, &expr, ty)
    {
        let number = *number as i128;
        let bits = number as u128 & mask(*width);
        let back = if number < 0 { signed(bits, *width) } else { bits as i128 };
        let fits = *width > 0 && (back == number || *width == MAX_WIDTH);
        let signed_fits = !matches!(ty, Type::Int(_)) || signed(bits, *width) == number;
        if fits && signed_fits {
            return Ok(ir::Expr::Const(bits));
        }
        return fault(span, format!("{number} does not fit in {ty}"));
    }
    fault(span, format!("expected {ty}, found {found}"))
}

/// An explicit cast.
fn cast(value: Typed, ty: &Type, span: Span) -> Res<Typed> {
    let (expr, found) = value;
    let done = |expr| Ok((expr, ty.clone()));
    match (&found, ty) {
        (from, to) if from == to => done(expr),
        (Type::AnyInt, Type::Bit(width) | Type::Int(width)) => match expr {
            ir::Expr::Const(value) => done(ir::Expr::Const(value & mask(*width))),
            _ => fault(span, "this must be a constant"),
        },
        (Type::Bool, Type::Bit(1)) | (Type::Bit(1), Type::Bool) => done(expr),
        (Type::Bit(from), Type::Bit(to)) => {
            done(if to < from { slice(expr, 0, *to) } else { expr })
        }
        (Type::Bit(a), Type::Int(b)) | (Type::Int(a), Type::Bit(b)) if a == b => done(expr),
        (Type::Int(from), Type::Int(to)) if to < from => done(slice(expr, 0, *to)),
        (Type::Int(from), Type::Int(to)) => done(match expr {
            ir::Expr::Const(value) => ir::Expr::Const(signed(value, *from) as u128 & mask(*to)),
            value => ir::Expr::SignExtend { value: Box::new(value), from: *from, to: *to },
        }),
        (Type::Enum(def), Type::Bit(width)) if def.width == Some(*width) => done(expr),
        (Type::Bit(width), Type::Enum(def)) if def.width == Some(*width) => done(expr),
        _ => fault(span, format!("a {found} can't be cast to {ty}")),
    }
}

pub(super) fn slice(value: ir::Expr, low: u16, width: u16) -> ir::Expr {
    match value {
        ir::Expr::Const(value) => ir::Expr::Const(value >> low & mask(width)),
        value => ir::Expr::Slice { value: Box::new(value), low, width },
    }
}

fn not(value: ir::Expr) -> ir::Expr {
    match value {
        ir::Expr::Const(value) => ir::Expr::Const(value ^ 1),
        value => ir::Expr::LogicNot(Box::new(value)),
    }
}

fn logic(and: bool, a: ir::Expr, b: ir::Expr) -> ir::Expr {
    match (&a, and) {
        (ir::Expr::Const(0), true) | (ir::Expr::Const(1), false) => a,
        (ir::Expr::Const(_), _) => b,
        (_, true) => ir::Expr::LogicAnd(Box::new(a), Box::new(b)),
        (_, false) => ir::Expr::LogicOr(Box::new(a), Box::new(b)),
    }
}

/// An operation, computed at once if both operands are known.
pub(super) fn operation(op: Op, width: u16, a: ir::Expr, b: ir::Expr) -> ir::Expr {
    match (&a, &b) {
        (ir::Expr::Const(a), ir::Expr::Const(b)) => ir::Expr::Const(ops::apply(op, width, *a, *b)),
        _ => ir::Expr::Op { op, width, a: Box::new(a), b: Box::new(b) },
    }
}

fn concat(a: Typed, b: Typed, span: Span) -> Res<Typed> {
    let widths = match (&a.1, &b.1) {
        (Type::Bit(x) | Type::Int(x), Type::Bit(y) | Type::Int(y)) => Some((*x, *y)),
        _ => None,
    };
    let Some((high_width, low_width)) = widths else {
        return fault(span, format!("{} ++ {}: both need a width", a.1, b.1));
    };
    let width = high_width + low_width;
    if width > MAX_WIDTH {
        return fault(span, format!("{width} bits: the model computes with {MAX_WIDTH}"));
    }
    let ty = if matches!(a.1, Type::Int(_)) { Type::Int(width) } else { Type::Bit(width) };
    let expr = match (a.0, b.0) {
        (ir::Expr::Const(high), ir::Expr::Const(low)) => {
            ir::Expr::Const(if low_width == MAX_WIDTH { low } else { high << low_width | low })
        }
        (high, low) => ir::Expr::Concat { high: Box::new(high), low: Box::new(low), low_width },
    };
    Ok((expr, ty))
}

fn shift(op: BinaryOp, a: Typed, b: Typed, span: Span) -> Res<Typed> {
    let negative = b.1.is_signed() && matches!(b.0, ir::Expr::Const(v) if (v as i128) < 0);
    if negative || !matches!(b.1, Type::Bit(_) | Type::AnyInt) {
        return fault(span, "a shift needs an unsigned distance");
    }
    let (width, op) = match (&a.1, op) {
        (Type::Bit(width) | Type::Int(width), BinaryOp::Shl) => (*width, Op::Shl),
        (Type::Bit(width), _) => (*width, Op::Shr),
        (Type::Int(width), _) => (*width, Op::ShrSigned),
        (Type::AnyInt, BinaryOp::Shl) => (MAX_WIDTH, Op::Shl),
        (Type::AnyInt, _) => (MAX_WIDTH, Op::ShrSigned),
        (ty, _) => return fault(span, format!("a shift of {ty} has no meaning")),
    };
    Ok((operation(op, width, a.0, b.0), a.1))
}

/// Operators on two operands of one type.
fn arithmetic(op: BinaryOp, a: Typed, b: Typed, span: Span) -> Res<Typed> {
    let ty = if a.1 == Type::AnyInt { b.1.clone() } else { a.1.clone() };
    if a.1 != b.1 && a.1 != Type::AnyInt && b.1 != Type::AnyInt {
        return fault(span, format!("the operands differ: {} and {}", a.1, b.1));
    }
    let x = convert(a, &ty, span)?;
    let y = convert(b, &ty, span)?;
    let is_signed = ty.is_signed();
    let equality = matches!(op, BinaryOp::Eq | BinaryOp::Ne);
    let width = match (&ty, equality) {
        (Type::Bit(width) | Type::Int(width), _) => *width,
        (Type::AnyInt, _) => MAX_WIDTH,
        (Type::Bool | Type::Enum(_) | Type::Error, true) => MAX_WIDTH,
        _ => return fault(span, format!("this operator has no meaning for {ty}")),
    };
    let pick = |unsigned, with_sign| if is_signed { with_sign } else { unsigned };
    let compare = |op, a, b| Ok((operation(op, width, a, b), Type::Bool));
    let op = match op {
        BinaryOp::Eq => return compare(Op::Eq, x, y),
        BinaryOp::Ne => return compare(Op::Ne, x, y),
        BinaryOp::Lt => return compare(pick(Op::Lt, Op::LtSigned), x, y),
        BinaryOp::Le => return compare(pick(Op::Le, Op::LeSigned), x, y),
        BinaryOp::Gt => return compare(pick(Op::Lt, Op::LtSigned), y, x),
        BinaryOp::Ge => return compare(pick(Op::Le, Op::LeSigned), y, x),
        BinaryOp::Div | BinaryOp::Mod => return divide(op, x, y, ty, span),
        BinaryOp::Add => Op::Add,
        BinaryOp::Sub => Op::Sub,
        BinaryOp::Mul => Op::Mul,
        BinaryOp::SatAdd => pick(Op::SatAdd, Op::SatAddSigned),
        BinaryOp::SatSub => pick(Op::SatSub, Op::SatSubSigned),
        BinaryOp::And => Op::And,
        BinaryOp::Or => Op::Or,
        _ => Op::Xor,
    };
    let saturates = matches!(op, Op::SatAddSigned | Op::SatSubSigned);
    if ty == Type::AnyInt && saturates {
        return fault(span, "saturating arithmetic needs a width");
    }
    let known = matches!((&x, &y), (ir::Expr::Const(_), ir::Expr::Const(_)));
    if op == Op::Mul && !known {
        return fault(span, "Tofino has no multiplication; shift and add instead");
    }
    Ok((operation(op, width, x, y), ty))
}

fn divide(op: BinaryOp, a: ir::Expr, b: ir::Expr, ty: Type, span: Span) -> Res<Typed> {
    let (ir::Expr::Const(a), ir::Expr::Const(b)) = (a, b) else {
        return fault(span, "Tofino has no division; only constants can be divided");
    };
    let value = if op == BinaryOp::Div { a.checked_div(b) } else { a.checked_rem(b) };
    match value {
        Some(value) if (a as i128) >= 0 && (b as i128) >= 0 => Ok((ir::Expr::Const(value), ty)),
        _ => fault(span, "division by zero or of a negative number"),
    }
}
