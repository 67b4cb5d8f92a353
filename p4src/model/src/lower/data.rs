//! Lists of fields: what is hashed, summed, mirrored or sent to the control plane.

use std::rc::Rc;

use super::Lowerer;
use super::scope::{Place, Scope};
use crate::ir::{self, Data, DataField, Slot};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{Expr, ExprKind};
use crate::types::Type;

impl Lowerer {
    /// All scalars of an expression, lists and structs taken apart.
    pub(super) fn data(&mut self, scope: &Rc<Scope>, expr: &Expr) -> Res<Data> {
        let mut data = Data::default();
        self.collect(scope, expr, &mut data)?;
        Ok(data)
    }

    fn collect(&mut self, scope: &Rc<Scope>, expr: &Expr, data: &mut Data) -> Res<()> {
        match &expr.kind {
            ExprKind::List(items) => {
                items.iter().try_for_each(|item| self.collect(scope, item, data))
            }
            ExprKind::Record(fields) => {
                fields.iter().try_for_each(|(_, value)| self.collect(scope, value, data))
            }
            _ => {
                if let Some(place) = self.place(scope, expr)?
                    && !place.ty.is_scalar()
                {
                    return collect_place(&place, None, data, expr.span);
                }
                let (value, ty) = self.scalar(scope, expr)?;
                let Some(width) = ty.width() else {
                    return fault(expr.span, "this constant needs a width, as in 8w0");
                };
                data.fields.push(DataField { value, width, valid: None });
                Ok(())
            }
        }
    }

    /// As [`Lowerer::data`], for a parameter of a known type: a list must fit its fields.
    pub(super) fn data_of(&mut self, scope: &Rc<Scope>, expr: &Expr, ty: &Type) -> Res<Data> {
        let mut data = Data::default();
        self.collect_typed(scope, expr, ty, &mut data)?;
        Ok(data)
    }

    fn collect_typed(
        &mut self,
        scope: &Rc<Scope>,
        expr: &Expr,
        ty: &Type,
        data: &mut Data,
    ) -> Res<()> {
        if let ExprKind::List(_) | ExprKind::Record(_) = &expr.kind {
            for (item, ty) in list_items(expr, ty)? {
                self.collect_typed(scope, item, &ty, data)?;
            }
            return Ok(());
        }
        if ty.is_scalar() {
            let value = self.typed(scope, expr, ty)?;
            let Some(width) = ty.width() else { return fault(expr.span, "a width is missing") };
            data.fields.push(DataField { value, width, valid: None });
            return Ok(());
        }
        match self.place(scope, expr)? {
            Some(place) if place.ty == *ty => collect_place(&place, None, data, expr.span),
            Some(place) => fault(expr.span, format!("expected {ty}, found {}", place.ty)),
            None => fault(expr.span, format!("expected {ty}")),
        }
    }
}

/// The items of a list or record with the types of the fields they stand for.
pub(super) fn list_items<'a>(expr: &'a Expr, ty: &Type) -> Res<Vec<(&'a Expr, Type)>> {
    let fields: Vec<(Option<Rc<str>>, Type)> = match ty {
        Type::Header(fields) | Type::Struct(fields) => {
            fields.fields.iter().map(|f| (Some(f.name.clone()), f.ty.clone())).collect()
        }
        Type::Tuple(items) => items.iter().map(|item| (None, item.clone())).collect(),
        _ => return fault(expr.span, format!("a list can't become a value of type {ty}")),
    };
    match &expr.kind {
        ExprKind::List(items) if items.len() == fields.len() => {
            Ok(items.iter().zip(fields).map(|(item, (_, ty))| (item, ty)).collect())
        }
        ExprKind::Record(items) if items.len() == fields.len() => fields
            .into_iter()
            .map(|(name, ty)| {
                let item = items.iter().find(|(item, _)| Some(&item.text) == name.as_ref());
                match (item, name) {
                    (Some((_, value)), _) => Ok((value, ty)),
                    (None, Some(name)) => fault(expr.span, format!("field `{name}` is missing")),
                    (None, None) => fault(expr.span, "a tuple has no names"),
                }
            })
            .collect(),
        _ => fault(expr.span, format!("{ty} has {} fields", fields.len())),
    }
}

/// Every scalar that lies in the place; those of a header count only while it is valid.
fn collect_place(place: &Place, valid: Option<Slot>, data: &mut Data, span: Span) -> Res<()> {
    match &place.ty {
        Type::Header(fields) | Type::Struct(fields) => {
            let is_header = matches!(place.ty, Type::Header(_));
            let valid = if is_header { Some(place.slot) } else { valid };
            for field in &fields.fields {
                let part = Place::whole(field.ty.clone(), place.slot + field.offset);
                collect_place(&part, valid, data, span)?;
            }
            Ok(())
        }
        Type::Stack(element, count) => {
            for index in 0..*count {
                let slot = place.slot + 1 + index * element.slots;
                let part = Place::whole(Type::Header(element.clone()), slot);
                collect_place(&part, valid, data, span)?;
            }
            Ok(())
        }
        Type::Tuple(items) => {
            let mut slot = place.slot;
            for item in items.iter() {
                collect_place(&Place::whole(item.clone(), slot), valid, data, span)?;
                slot += item.slots();
            }
            Ok(())
        }
        ty => match ty.width() {
            Some(width) => {
                let value = ir::Expr::Slot(place.slot);
                data.fields.push(DataField { value, width, valid });
                Ok(())
            }
            None => fault(span, format!("a value of type {ty} can't be used here")),
        },
    }
}
