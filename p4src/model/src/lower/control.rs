//! Instances of controls and what applying them means.
//!
//! Every instance has its own tables, registers and variables. Its body is made when it is first
//! applied; parameters lie where the arguments lie, or in slots of their own.

use std::cell::RefCell;
use std::rc::Rc;

use super::call::Passing;
use super::scope::{Applied, Binding, Instance, Scope, unknown};
use super::{Lowerer, Stage};
use crate::arch::EXTERNS;
use crate::ir::{Block, Stmt};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{
    Annotation, Arg, ControlDecl, InstanceDecl, Name, Param, ParserDecl, TypeKind,
};

impl Lowerer {
    /// `Type(args) name;`
    pub(super) fn instantiate(
        &mut self,
        scope: &Rc<Scope>,
        decl: &Rc<InstanceDecl>,
    ) -> Res<Binding> {
        let TypeKind::Named(ty, types) = &decl.ty.kind else {
            return fault(decl.ty.span, "this type can't be instantiated");
        };
        let (name, args) = (&decl.name, &decl.args);
        match (scope.find(&ty.text), &*ty.text) {
            (Some((Binding::Control(control), _)), _) => {
                let notes = &decl.annotations;
                let made = self.control_instance(scope, &control, notes, name, args, ty.span)?;
                Ok(Binding::ControlInstance(made))
            }
            (Some((Binding::Parser(parser), _)), _) => {
                let notes = &decl.annotations;
                let made = self.parser_instance(scope, &parser, notes, name, args, ty.span)?;
                Ok(Binding::ParserInstance(made))
            }
            (Some(_), text) => fault(ty.span, format!("`{text}` can't be instantiated")),
            (None, "Pipeline" | "Switch") => Ok(Binding::Package(decl.clone())),
            (None, text) if EXTERNS.contains(&text) => self.extern_instance(scope, decl, types),
            (None, text) => unknown(ty.span, text),
        }
    }

    pub(super) fn control_instance(
        &mut self,
        scope: &Rc<Scope>,
        decl: &Rc<ControlDecl>,
        annotations: &[Annotation],
        name: &Name,
        args: &[Arg],
        span: Span,
    ) -> Res<Rc<Instance<ControlDecl>>> {
        Ok(Rc::new(Instance {
            decl: decl.clone(),
            scope: self.constructor(scope, &decl.constructor, args, span)?,
            path: self.control_name(annotations, name),
            applied: RefCell::default(),
        }))
    }

    pub(super) fn parser_instance(
        &mut self,
        scope: &Rc<Scope>,
        decl: &Rc<ParserDecl>,
        annotations: &[Annotation],
        name: &Name,
        args: &[Arg],
        span: Span,
    ) -> Res<Rc<Instance<ParserDecl>>> {
        Ok(Rc::new(Instance {
            decl: decl.clone(),
            scope: self.constructor(scope, &decl.constructor, args, span)?,
            path: self.control_name(annotations, name),
            applied: RefCell::default(),
        }))
    }

    /// The scope that holds the constructor parameters: constants and extern objects.
    fn constructor(
        &mut self,
        scope: &Rc<Scope>,
        params: &[Param],
        args: &[Arg],
        span: Span,
    ) -> Res<Rc<Scope>> {
        let inner = Scope::inside(&self.globals);
        for (param, arg) in params.iter().zip(Self::order(params, args, span)?) {
            let is_extern = matches!(&param.ty.kind,
                TypeKind::Named(name, _) if EXTERNS.contains(&&*name.text));
            let binding = if is_extern {
                Binding::Extern(self.extern_arg(scope, arg)?)
            } else {
                let ty = self.resolve(&self.globals.clone(), &param.ty)?;
                Binding::Const(self.constant_of(scope, arg, &ty)?, ty)
            };
            inner.declare(&param.name, binding)?;
        }
        Ok(inner)
    }

    /// `instance.apply(args);`
    pub(super) fn apply_control(
        &mut self,
        scope: &Rc<Scope>,
        instance: &Rc<Instance<ControlDecl>>,
        args: &[Arg],
        span: Span,
        out: &mut Block,
    ) -> Res<()> {
        self.only_in(&[Stage::Control, Stage::Deparser], span, "applying a control")?;
        if !self.inlining.is_empty() {
            return fault(span, "an action can't apply a control");
        }
        let decl = &instance.decl;
        let args = Self::order(&decl.params, args, span)?;
        let previous = instance.applied.borrow().clone();
        let before = previous.as_ref().map(|applied| &applied.params[..]);
        let bound =
            self.bind(scope, &instance.scope, &decl.params, &args, Passing::Alias, before, out)?;
        let code = match previous {
            Some(applied) => {
                same_arguments(&applied, &bound.params, span)?;
                applied.code
            }
            None => {
                let body = self.control_body(instance, &bound.params)?;
                self.code.bodies.push(body);
                let code = self.code.bodies.len() as u32 - 1;
                let params = bound.params;
                *instance.applied.borrow_mut() = Some(Applied { params, code });
                code
            }
        };
        let body = vec![Stmt::Call(code)];
        out.push(Stmt::Scope { body, after: bound.after });
        Ok(())
    }

    /// The locals and the apply block with the parameters bound.
    pub(super) fn control_body(
        &mut self,
        instance: &Instance<ControlDecl>,
        params: &[Binding],
    ) -> Res<Block> {
        let decl = &instance.decl;
        let scope = Scope::inside(&instance.scope);
        for (param, binding) in decl.params.iter().zip(params) {
            scope.declare(&param.name, binding.clone())?;
        }
        let outer_path = std::mem::replace(&mut self.path, instance.path.clone());
        let mut body = Block::new();
        for local in &decl.locals {
            self.declare(&scope, local, &mut body)?;
        }
        body.extend(self.block(&scope, &decl.body)?);
        self.path = outer_path;
        Ok(body)
    }
}

/// An instance can be applied again only if its code fits.
pub(super) fn same_arguments(applied: &Applied, params: &[Binding], span: Span) -> Res<()> {
    let same = applied.params.iter().zip(params).all(|(a, b)| a.same(b));
    if same {
        return Ok(());
    }
    fault(span, "this instance was applied before with other arguments; declare a second instance")
}
