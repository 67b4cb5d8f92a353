//! Declarations of types, constants and variables.

use std::rc::Rc;

use super::scope::{Binding, Scope, unknown};
use super::{Lowerer, Stage};
use crate::ir::{Block, Layout, LayoutField, ValueSet};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{Decl, Expr, Field, Name, TypeExpr, TypeKind};
use crate::types::{EnumDef, Fields, MAX_WIDTH, Type};

impl Lowerer {
    pub(super) fn declare(&mut self, scope: &Rc<Scope>, decl: &Decl, out: &mut Block) -> Res<()> {
        match decl {
            Decl::Nothing => Ok(()),
            Decl::Const { ty, name, value } => {
                let ty = self.resolve(scope, ty)?;
                let value = self.constant_of(scope, value, &ty)?;
                scope.declare(name, Binding::Const(value, ty))
            }
            Decl::Typedef { ty, name } => {
                let ty = self.resolve(scope, ty)?;
                scope.declare(name, Binding::Type(ty))
            }
            Decl::Header { name, fields } => {
                let fields = self.fields(scope, name, fields, 1)?;
                let ty = Type::Header(Rc::new(fields));
                self.layout_of(&ty, name.span)?;
                scope.declare(name, Binding::Type(ty))
            }
            Decl::Struct { name, fields } => {
                let fields = self.fields(scope, name, fields, 0)?;
                scope.declare(name, Binding::Type(Type::Struct(Rc::new(fields))))
            }
            Decl::Enum { name, base, members } => {
                let ty = self.enumeration(scope, name, base.as_ref(), members)?;
                scope.declare(name, Binding::Type(ty))
            }
            Decl::Errors(names) => {
                for name in names {
                    if self.errors.contains(&name.text) {
                        return fault(name.span, format!("error.{} is declared twice", name.text));
                    }
                    self.errors.push(name.text.clone());
                }
                Ok(())
            }
            Decl::Variable { ty, name, value } => {
                let ty = self.resolve(scope, ty)?;
                if ty == Type::AnyInt || ty == Type::Text {
                    return fault(name.span, format!("a variable can't be of type {ty}"));
                }
                if Rc::ptr_eq(scope, &self.globals) {
                    return fault(name.span, "variables belong into a control or parser");
                }
                let place = self.allocate(ty);
                if let Some(value) = value {
                    self.assign(scope, &place, value, out)?;
                }
                self.declare_place(scope, name, place)
            }
            Decl::ValueSet { ty, size, name } => {
                self.only_in(&[Stage::Parser], name.span, "a value set")?;
                let ty = self.resolve(scope, ty)?;
                let Some(width) = ty.width() else {
                    let message = format!("a value set of {ty} is not supported by the model");
                    return fault(name.span, message);
                };
                let size = self.count(scope, size)?;
                let index = self.code.value_sets.len() as u32;
                let name_there = self.control_name(&[], name);
                self.code.value_sets.push(ValueSet { name: name_there, size, width });
                let set = super::scope::Extern::ValueSet(index, ty);
                scope.declare(name, Binding::Extern(set))
            }
            Decl::Instance(decl) => {
                let binding = self.instantiate(scope, decl)?;
                scope.declare(&decl.name, binding)
            }
            Decl::Action(decl) => scope.declare(&decl.name, Binding::Action(decl.clone())),
            Decl::Function(decl) => scope.declare(&decl.name, Binding::Function(decl.clone())),
            Decl::Control(decl) => scope.declare(&decl.name, Binding::Control(decl.clone())),
            Decl::Parser(decl) => scope.declare(&decl.name, Binding::Parser(decl.clone())),
            Decl::Table(decl) => {
                self.only_in(&[Stage::Control], decl.name.span, "a table")?;
                let index = self.table(scope, decl)?;
                scope.declare(&decl.name, Binding::Table(index))
            }
        }
    }

    fn fields(
        &mut self,
        scope: &Rc<Scope>,
        name: &Name,
        fields: &[Field],
        first: u32,
    ) -> Res<Fields> {
        let mut out: Vec<(Rc<str>, Type)> = Vec::new();
        for field in fields {
            let ty = self.resolve(scope, &field.ty)?;
            if out.iter().any(|(name, _)| *name == field.name.text) {
                return fault(field.name.span, format!("field `{}` twice", field.name.text));
            }
            // Paddings of no bits are left out, as compilers do.
            if ty == Type::Bit(0) {
                continue;
            }
            out.push((field.name.text.clone(), ty));
        }
        Ok(Fields::new(name.text.clone(), out, first))
    }

    fn enumeration(
        &mut self,
        scope: &Rc<Scope>,
        name: &Name,
        base: Option<&TypeExpr>,
        members: &[(Name, Option<Expr>)],
    ) -> Res<Type> {
        let base = base.map(|base| self.resolve(scope, base)).transpose()?;
        let mut values = Vec::new();
        for (index, (member, value)) in members.iter().enumerate() {
            let value = match (&base, value) {
                (Some(base), Some(value)) => self.constant_of(scope, value, base)?,
                (None, None) => index as u128,
                (Some(_), None) => {
                    return fault(member.span, "each member of this enum needs a value");
                }
                (None, Some(_)) => {
                    return fault(member.span, "only an enum with a width has values");
                }
            };
            values.push((member.text.clone(), value));
        }
        let width = base.and_then(|base| base.width());
        Ok(Type::Enum(Rc::new(EnumDef { name: name.text.clone(), width, members: values })))
    }

    pub(super) fn resolve(&mut self, scope: &Rc<Scope>, ty: &TypeExpr) -> Res<Type> {
        match &ty.kind {
            TypeKind::Bool => Ok(Type::Bool),
            TypeKind::Error => Ok(Type::Error),
            TypeKind::String => Ok(Type::Text),
            TypeKind::Void => Ok(Type::Void),
            TypeKind::AnyInt => Ok(Type::AnyInt),
            TypeKind::Bit(width) => Ok(Type::Bit(self.type_width(scope, width)?)),
            TypeKind::Int(width) => Ok(Type::Int(self.type_width(scope, width)?)),
            TypeKind::DontCare => fault(ty.span, "the model needs a type here, not `_`"),
            TypeKind::Tuple(items) => {
                let items: Res<Vec<Type>> =
                    items.iter().map(|item| self.resolve(scope, item)).collect();
                Ok(Type::Tuple(items?.into()))
            }
            TypeKind::Stack(element, count) => {
                let Type::Header(fields) = self.resolve(scope, element)? else {
                    return fault(ty.span, "only headers can be stacked");
                };
                let count = self.count(scope, count)?;
                match u32::try_from(count) {
                    Ok(count) if (1..=256).contains(&count) => Ok(Type::Stack(fields, count)),
                    _ => fault(ty.span, "a stack has 1 to 256 headers"),
                }
            }
            TypeKind::Named(name, _) => match scope.find(&name.text) {
                Some((Binding::Type(ty), _)) => Ok(ty),
                Some(_) => fault(name.span, format!("`{}` is no type", name.text)),
                None => unknown(name.span, &name.text),
            },
        }
    }

    fn type_width(&mut self, scope: &Rc<Scope>, width: &Expr) -> Res<u16> {
        let value = self.count(scope, width)?;
        match u16::try_from(value) {
            Ok(width) if width <= MAX_WIDTH => Ok(width),
            _ => fault(
                width.span,
                format!("the model computes with at most {MAX_WIDTH} bits, not {value}"),
            ),
        }
    }

    /// A constant that counts something.
    pub(super) fn count(&mut self, scope: &Rc<Scope>, expr: &Expr) -> Res<usize> {
        let (value, ty) = self.constant(scope, expr)?;
        if !matches!(ty, Type::AnyInt | Type::Bit(_)) {
            return fault(expr.span, format!("expected a number, found {ty}"));
        }
        match usize::try_from(value) {
            Ok(count) if count <= 1 << 30 => Ok(count),
            _ => fault(expr.span, "this number is too large or negative"),
        }
    }

    /// Where the fields of a header lie in a packet.
    pub(super) fn layout_of(&mut self, header: &Type, span: Span) -> Res<u32> {
        let Type::Header(fields) = header else {
            return fault(span, format!("expected a header, found {header}"));
        };
        if let Some(&index) = self.layouts.get(&fields.name) {
            return Ok(index);
        }
        let mut bit = 0;
        let mut layout = Vec::new();
        for field in &fields.fields {
            let scalar = match &field.ty {
                Type::Bit(width) | Type::Int(width) => Some(*width),
                Type::Bool => Some(1),
                Type::Enum(def) => def.width,
                _ => None,
            };
            let Some(width) = scalar else {
                let message = format!(
                    "field `{}` of header {}: {} in a header is not supported by the model",
                    field.name, fields.name, field.ty
                );
                return fault(span, message);
            };
            layout.push(LayoutField { slot: field.offset, bit, width });
            bit += u32::from(width);
        }
        if bit % 8 != 0 {
            let message =
                format!("header {} has {bit} bits; Tofino needs whole bytes", fields.name);
            return fault(span, message);
        }
        let index = self.code.layouts.len() as u32;
        self.code.layouts.push(Layout { fields: layout, bits: bit });
        self.layouts.insert(fields.name.clone(), index);
        Ok(index)
    }
}
