//! Tables: keys, actions, entries.

use std::rc::Rc;

use super::Lowerer;
use super::call::Passing;
use super::scope::{Binding, Extern, Scope};
use crate::ir::{Action, ActionParam, Block, FieldMatch, Key, MatchKind, StaticEntry, Stmt, Table};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{
    ActionRef, Arg, Direction, EntryDecl, Expr, ExprKind, KeyDecl, TableDecl,
};
use crate::types::{Type, mask, prefix_mask};

/// Size of a table that does not say.
const DEFAULT_SIZE: usize = 512;

/// Widest range field that Tofino matches.
const MAX_RANGE_WIDTH: u16 = 20;

impl Lowerer {
    pub(super) fn table(&mut self, scope: &Rc<Scope>, decl: &TableDecl) -> Res<u32> {
        let name = self.control_name(&decl.annotations, &decl.name);
        let mut keys = Vec::new();
        let mut types = Vec::new();
        for key in &decl.keys {
            let (key, ty) = self.key(scope, key)?;
            keys.push(key);
            types.push(ty);
        }
        check_kinds(&keys, decl.name.span)?;
        let mut actions = Vec::new();
        for action in &decl.actions {
            actions.push(self.table_action(scope, action)?);
        }
        let (default_action, default_args, default_const) = match &decl.default_action {
            Some((action, constant)) => {
                let (index, args) = self.choice(scope, action, decl, &mut actions)?;
                (index, args, *constant)
            }
            None => (no_action(&mut actions), Vec::new(), false),
        };
        let size = match &decl.size {
            Some(size) => self.count(scope, size)?,
            None => decl.entries.as_ref().map_or(DEFAULT_SIZE, |(e, _)| e.len().max(1)),
        };
        let (list, entries_const) = match &decl.entries {
            Some((list, constant)) => (&list[..], *constant),
            None => (&[][..], false),
        };
        if list.len() > size {
            let message = format!("{} entries, but size is {size}", list.len());
            return fault(decl.name.span, message);
        }
        let mut entries = Vec::new();
        for entry in list {
            entries.push(self.entry(scope, entry, decl, &keys, &types, &mut actions)?);
        }
        if let Some(name) = &decl.counters
            && !matches!(scope.get(name)?, Binding::Extern(Extern::DirectCounter(_)))
        {
            return fault(name.span, format!("`{}` is no DirectCounter", name.text));
        }
        let hit = self.allocate(Type::Bool).slot;
        let ran = self.allocate(Type::Bit(32)).slot;
        self.code.tables.push(Table {
            name,
            keys,
            actions,
            default_action,
            default_args,
            default_const,
            size,
            entries,
            entries_const,
            hit,
            ran,
        });
        Ok(self.code.tables.len() as u32 - 1)
    }

    fn key(&mut self, scope: &Rc<Scope>, key: &KeyDecl) -> Res<(Key, Type)> {
        let kind = match &*key.kind.text {
            "exact" => MatchKind::Exact,
            "ternary" => MatchKind::Ternary,
            "lpm" => MatchKind::Lpm,
            "range" => MatchKind::Range,
            other => {
                let message = format!("match kind `{other}` is not supported by the model");
                return fault(key.kind.span, message);
            }
        };
        let (value, ty) = self.scalar(scope, &key.value)?;
        let Some(width) = ty.width() else {
            return fault(key.value.span, "a key needs a width");
        };
        if kind == MatchKind::Range && width > MAX_RANGE_WIDTH {
            let message =
                format!("Tofino matches ranges of at most {MAX_RANGE_WIDTH} bits, not {width}");
            return fault(key.value.span, message);
        }
        let given = key.annotations.iter().find(|a| &*a.name.text == "name");
        let name = match given.and_then(|a| a.text.as_deref()) {
            Some(text) => text.to_owned(),
            None => spell(&key.value),
        };
        Ok((Key { name, kind, width, value }, ty))
    }

    /// An action of a table: its data get slots, its other parameters are bound here.
    fn table_action(&mut self, scope: &Rc<Scope>, action: &ActionRef) -> Res<Action> {
        let Binding::Action(decl) = scope.get(&action.name)? else {
            return fault(action.name.span, format!("`{}` is no action", action.name.text));
        };
        let (_, home) = scope.get_with_scope(&action.name)?;
        let name = if Rc::ptr_eq(&home, &self.globals) {
            decl.name.text.to_string()
        } else {
            self.control_name(&decl.annotations, &decl.name)
        };
        let directed = decl.params.iter().take_while(|p| p.direction != Direction::None).count();
        let (with_direction, data) = decl.params.split_at(directed);
        if let Some(late) = data.iter().find(|p| p.direction != Direction::None) {
            let message = "parameters with a direction come before the action data";
            return fault(late.name.span, message);
        }
        let mut body = Block::new();
        let args = Self::order(with_direction, &action.args, action.name.span)?;
        let bound =
            self.bind(scope, &home, with_direction, &args, Passing::Copy, None, &mut body)?;
        let inner = Scope::inside(&home);
        for (param, binding) in with_direction.iter().zip(bound.params) {
            inner.declare(&param.name, binding)?;
        }
        let mut params = Vec::new();
        for param in data {
            let ty = self.resolve(&home, &param.ty)?;
            let Some(width) = ty.width() else {
                let message = format!("action data of type {ty} is not supported by the model");
                return fault(param.name.span, message);
            };
            let mut place = self.allocate(ty);
            place.writable = false;
            params.push(ActionParam { name: param.name.text.to_string(), width, slot: place.slot });
            inner.declare(&param.name, Binding::Place(place))?;
        }
        self.inlining.push(decl.name.text.clone());
        let inlined = self.block(&inner, &decl.body);
        self.inlining.pop();
        body.push(Stmt::Scope { body: inlined?, after: bound.after });
        let has = |text: &str| action.annotations.iter().any(|a| &*a.name.text == text);
        let (default_only, table_only) = (has("defaultonly"), has("tableonly"));
        Ok(Action { name, params, body, default_only, table_only })
    }

    /// The action that an entry or default names, and its data.
    fn choice(
        &mut self,
        scope: &Rc<Scope>,
        choice: &ActionRef,
        decl: &TableDecl,
        actions: &mut Vec<Action>,
    ) -> Res<(u32, Vec<u128>)> {
        let listed = decl.actions.iter().position(|a| a.name.text == choice.name.text);
        let index = match listed {
            Some(index) => index,
            None if &*choice.name.text == "NoAction" => no_action(actions) as usize,
            None => {
                let message = format!("`{}` is no action of this table", choice.name.text);
                return fault(choice.name.span, message);
            }
        };
        let Binding::Action(action) = scope.get(&choice.name)? else {
            return fault(choice.name.span, format!("`{}` is no action", choice.name.text));
        };
        let (_, home) = scope.get_with_scope(&choice.name)?;
        let data: Vec<_> =
            action.params.iter().filter(|p| p.direction == Direction::None).cloned().collect();
        let directed = action.params.len() - data.len();
        // The arguments may repeat those with a direction.
        let args: &[Arg] = if choice.args.len() > data.len() {
            choice.args.get(directed..).unwrap_or(&[])
        } else {
            &choice.args
        };
        let mut values = Vec::new();
        for (param, arg) in data.iter().zip(Self::order(&data, args, choice.name.span)?) {
            let ty = self.resolve(&home, &param.ty)?;
            values.push(self.constant_of(scope, arg, &ty)?);
        }
        Ok((index as u32, values))
    }

    fn entry(
        &mut self,
        scope: &Rc<Scope>,
        entry: &EntryDecl,
        decl: &TableDecl,
        keys: &[Key],
        types: &[Type],
        actions: &mut Vec<Action>,
    ) -> Res<StaticEntry> {
        if entry.keys.len() != keys.len() {
            let message = format!("{} values for {} key fields", entry.keys.len(), keys.len());
            return fault(entry.span, message);
        }
        let mut matches = Vec::new();
        for ((value, key), ty) in entry.keys.iter().zip(keys).zip(types) {
            matches.push(self.entry_field(scope, value, key, ty)?);
        }
        let (action, args) = self.choice(scope, &entry.action, decl, actions)?;
        Ok(StaticEntry { keys: matches, action, args })
    }

    fn entry_field(
        &mut self,
        scope: &Rc<Scope>,
        value: &Expr,
        key: &Key,
        ty: &Type,
    ) -> Res<FieldMatch> {
        let all = mask(key.width);
        let any = matches!(value.kind, ExprKind::DontCare | ExprKind::Default);
        let masked = match &value.kind {
            ExprKind::Mask(value, mask) => {
                Some((self.constant_of(scope, value, ty)?, self.constant_of(scope, mask, ty)?))
            }
            _ => None,
        };
        match (key.kind, &value.kind, masked) {
            (MatchKind::Ternary, _, _) if any => Ok(FieldMatch::Ternary { value: 0, mask: 0 }),
            (MatchKind::Lpm, _, _) if any => Ok(FieldMatch::Lpm { value: 0, length: 0 }),
            (MatchKind::Range, _, _) if any => Ok(FieldMatch::Range { low: 0, high: all }),
            (MatchKind::Ternary, _, Some((value, mask))) => {
                Ok(FieldMatch::Ternary { value: value & mask, mask })
            }
            (MatchKind::Lpm, _, Some((prefix, mask))) => {
                let length = mask.count_ones() as u16;
                if mask != prefix_mask(key.width, length) {
                    return fault(value.span, "a prefix has its ones in front");
                }
                Ok(FieldMatch::Lpm { value: prefix & mask, length })
            }
            (MatchKind::Range, ExprKind::Range(low, high), _) => {
                let low = self.constant_of(scope, low, ty)?;
                let high = self.constant_of(scope, high, ty)?;
                if low > high {
                    return fault(value.span, format!("the range {low} .. {high} is empty"));
                }
                Ok(FieldMatch::Range { low, high })
            }
            (_, ExprKind::Mask(..) | ExprKind::Range(..) | ExprKind::DontCare, _) => fault(
                value.span,
                format!("key field `{}` is matched otherwise ({:?})", key.name, key.kind),
            ),
            (kind, _, _) => {
                let value = self.constant_of(scope, value, ty)?;
                Ok(match kind {
                    MatchKind::Exact => FieldMatch::Exact(value),
                    MatchKind::Ternary => FieldMatch::Ternary { value, mask: all },
                    MatchKind::Lpm => FieldMatch::Lpm { value, length: key.width },
                    MatchKind::Range => FieldMatch::Range { low: value, high: value },
                })
            }
        }
    }
}

/// The index of `NoAction`, added if the table does not list it.
fn no_action(actions: &mut Vec<Action>) -> u32 {
    if let Some(index) = actions.iter().position(|a| a.name == "NoAction") {
        return index as u32;
    }
    actions.push(Action {
        name: "NoAction".into(),
        params: Vec::new(),
        body: Block::new(),
        default_only: true,
        table_only: false,
    });
    actions.len() as u32 - 1
}

fn check_kinds(keys: &[Key], span: Span) -> Res<()> {
    let count = |kind| keys.iter().filter(|key| key.kind == kind).count();
    let prefixes = count(MatchKind::Lpm);
    if prefixes > 1 {
        return fault(span, "a table has at most one lpm field");
    }
    if prefixes == 1 && count(MatchKind::Ternary) + count(MatchKind::Range) > 0 {
        return fault(span, "lpm beside ternary or range fields: make it ternary as well");
    }
    Ok(())
}

/// A key as the control plane names it: as it is written, but for an element of a stack, which a
/// compiler writes with a dollar.
fn spell(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Path(name) => name.text.to_string(),
        ExprKind::Number(number) => number.value.to_string(),
        ExprKind::Member(base, name) => format!("{}.{}", spell(base), name.text),
        ExprKind::Index(base, index) => format!("{}${}", spell(base), spell(index)),
        ExprKind::Slice(base, high, low) => {
            format!("{}[{}:{}]", spell(base), spell(high), spell(low))
        }
        ExprKind::Cast(_, inner) => spell(inner),
        ExprKind::Call(callee, _, _) => match &callee.kind {
            ExprKind::Member(base, method) if &*method.text == "isValid" => {
                format!("{}.$valid", spell(base))
            }
            _ => "key".into(),
        },
        _ => "key".into(),
    }
}
