//! Extern objects: making them and calling them.

use std::rc::Rc;

use super::expr::Typed;
use super::scope::{Binding, Extern, Place, Scope};
use super::stmt::no_such_method;
use super::{Lowerer, Stage};
use crate::hash::{Crc, Function, HashSpec, Polynomial};
use crate::ir::{self, Block, Counter, CounterKind, Data, Digest, Op, Register, Stmt};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{Arg, Expr, ExprKind, InstanceDecl, Name, TypeExpr, TypeKind};
use crate::types::Type;

impl Lowerer {
    /// `Extern<types>(args) name;`
    pub(super) fn extern_instance(
        &mut self,
        scope: &Rc<Scope>,
        decl: &InstanceDecl,
        types: &[TypeExpr],
    ) -> Res<Binding> {
        let TypeKind::Named(kind, _) = &decl.ty.kind else {
            return fault(decl.ty.span, "expected the name of an extern object");
        };
        if let Some(note) = decl.annotations.iter().find(|a| &*a.name.text == "symmetric") {
            return fault(note.name.span, "@symmetric is not supported by the model");
        }
        if let (Some(method), true) = (decl.methods.first(), &*kind.text != "RegisterAction") {
            return fault(method.name.span, format!("{} has no methods to define", kind.text));
        }
        if let Some(named) = decl.args.iter().find_map(|a| a.name.as_ref()) {
            return fault(named.span, "give the arguments of extern objects by position");
        }
        let args: Vec<&Expr> = decl.args.iter().map(|arg| &arg.value).collect();
        let object = match &*kind.text {
            "Register" => self.register(scope, decl, types, &args)?,
            "RegisterAction" => self.register_action(scope, decl, types, &args)?,
            "CRCPolynomial" => self.polynomial(scope, decl, types, &args)?,
            "Hash" => self.hash(scope, decl, types, &args)?,
            "Random" => {
                let ty = self.type_arg(scope, decl, types, 0)?;
                Extern::Random(ty.width().unwrap_or(0))
            }
            "Checksum" => {
                self.only_in(&[Stage::Parser, Stage::Deparser], kind.span, "Checksum")?;
                self.code.checksum_units += 1;
                Extern::Checksum(self.code.checksum_units as u32 - 1)
            }
            "Counter" => self.counter(scope, decl, &args)?,
            "DirectCounter" => match &args[..] {
                [kind] => Extern::DirectCounter(self.counter_kind(scope, kind)?),
                _ => return fault(kind.span, "DirectCounter(kind)"),
            },
            "Mirror" => {
                self.only_in(&[Stage::Deparser], kind.span, "Mirror")?;
                self.kind_number(scope, decl, &args)?;
                Extern::Mirror
            }
            "Resubmit" => {
                self.only_in(&[Stage::Deparser], kind.span, "Resubmit")?;
                if self.egress {
                    return fault(kind.span, "only the ingress deparser can resubmit");
                }
                self.kind_number(scope, decl, &args)?;
                Extern::Resubmit
            }
            "Digest" => {
                self.only_in(&[Stage::Deparser], kind.span, "Digest")?;
                if self.egress {
                    return fault(kind.span, "only the ingress deparser sends digests");
                }
                self.kind_number(scope, decl, &args)?;
                let ty = self.type_arg(scope, decl, types, 0)?;
                let name = self.control_name(&decl.annotations, &decl.name);
                let mut fields = Vec::new();
                field_names("", &ty, &mut fields);
                self.code.digests.push(Digest { name, fields });
                Extern::Digest(self.code.digests.len() as u32 - 1, ty)
            }
            "ParserPriority" => Extern::ParserPriority,
            "ParserCounter" => {
                self.only_in(&[Stage::Parser], kind.span, "ParserCounter")?;
                Extern::ParserCounter(self.allocate(Type::Int(8)).slot)
            }
            other => return fault(kind.span, format!("`{other}` is not supported by the model")),
        };
        Ok(Binding::Extern(object))
    }

    /// The number that `mirror_type` and its like may have for this instance; the program compares
    /// it itself.
    fn kind_number(&mut self, scope: &Rc<Scope>, decl: &InstanceDecl, args: &[&Expr]) -> Res<()> {
        match args {
            [] => Ok(()),
            [number] => self.constant_of(scope, number, &Type::Bit(3)).map(|_| ()),
            _ => fault(decl.ty.span, "one number at most"),
        }
    }

    pub(super) fn type_arg(
        &mut self,
        scope: &Rc<Scope>,
        decl: &InstanceDecl,
        types: &[TypeExpr],
        index: usize,
    ) -> Res<Type> {
        match types.get(index) {
            Some(ty) => self.resolve(scope, ty),
            None => fault(decl.ty.span, "type arguments are missing: <...>"),
        }
    }

    /// `Register<T, I>(size, initial)`: the limits of a stateful ALU hold for T.
    fn register(
        &mut self,
        scope: &Rc<Scope>,
        decl: &InstanceDecl,
        types: &[TypeExpr],
        args: &[&Expr],
    ) -> Res<Extern> {
        let span = decl.ty.span;
        let ty = self.type_arg(scope, decl, types, 0)?;
        let lanes = match &ty {
            Type::Bit(width) | Type::Int(width) => vec![(String::new(), *width)],
            Type::Struct(fields) => fields
                .fields
                .iter()
                .map(|f| (f.name.to_string(), f.ty.width().unwrap_or(0)))
                .collect(),
            _ => Vec::new(),
        };
        let widths: Vec<u16> = lanes.iter().map(|lane| lane.1).collect();
        let possible = match widths[..] {
            [width] => [1, 8, 16, 32].contains(&width),
            [a, b] => a == b && [8, 16, 32].contains(&a),
            _ => false,
        };
        if !possible {
            let message = format!(
                "a register of {ty} does not fit a stateful ALU: one value of 1, 8, 16 or 32 bits \
                 or a struct of two of 8, 16 or 32 bits"
            );
            return fault(span, message);
        }
        let (size, initial) = match args {
            [size] => (self.count(scope, size)?, [0, 0]),
            [size, value] => {
                let place = Place::whole(ty, 0);
                (self.count(scope, size)?, self.initial(scope, &place, value)?)
            }
            _ => return fault(span, "Register(size) or Register(size, initial value)"),
        };
        if size == 0 {
            return fault(span, "a register has at least one element");
        }
        let name = self.control_name(&decl.annotations, &decl.name);
        let register = Register { name, size, lanes, initial, egress: None, actions: 0 };
        self.code.registers.push(register);
        Ok(Extern::Register(self.code.registers.len() as u32 - 1))
    }

    fn initial(&mut self, scope: &Rc<Scope>, place: &Place, value: &Expr) -> Res<[u32; 2]> {
        let mut out = [0; 2];
        if place.ty.is_scalar() {
            out[0] = self.constant_of(scope, value, &place.ty)? as u32;
            return Ok(out);
        }
        for (slot, (item, ty)) in out.iter_mut().zip(super::data::list_items(value, &place.ty)?) {
            *slot = self.constant_of(scope, item, &ty)? as u32;
        }
        Ok(out)
    }

    /// `CRCPolynomial<T>(coefficients, reversed, msb, extended, init, xor)`
    fn polynomial(
        &mut self,
        scope: &Rc<Scope>,
        decl: &InstanceDecl,
        types: &[TypeExpr],
        args: &[&Expr],
    ) -> Res<Extern> {
        let ty = self.type_arg(scope, decl, types, 0)?;
        let (Type::Bit(width), [coefficients, reversed, msb, extended, initial, last_xor]) =
            (&ty, args)
        else {
            let message = "CRCPolynomial<bit<W>>(coefficients, reversed, msb, extended, init, xor)";
            return fault(decl.ty.span, message);
        };
        for (flag, name) in [(msb, "msb"), (extended, "extended")] {
            if self.constant_of(scope, flag, &Type::Bool)? != 0 {
                let message = format!("`{name}` = true is not supported by the model");
                return fault(flag.span, message);
            }
        }
        let polynomial = Polynomial {
            width: *width,
            coefficients: self.constant_of(scope, coefficients, &ty)? as u64,
            reflected: self.constant_of(scope, reversed, &Type::Bool)? != 0,
            initial: self.constant_of(scope, initial, &ty)? as u64,
            last_xor: self.constant_of(scope, last_xor, &ty)? as u64,
        };
        match polynomial.problem() {
            Some(problem) => fault(decl.ty.span, problem),
            None => Ok(Extern::Polynomial(polynomial)),
        }
    }

    /// `Hash<bit<W>>(algorithm)` or `Hash<bit<W>>(HashAlgorithm_t.CUSTOM, polynomial)`
    fn hash(
        &mut self,
        scope: &Rc<Scope>,
        decl: &InstanceDecl,
        types: &[TypeExpr],
        args: &[&Expr],
    ) -> Res<Extern> {
        let span = decl.ty.span;
        let Type::Bit(width) = self.type_arg(scope, decl, types, 0)? else {
            return fault(span, "Hash<bit<W>>");
        };
        let Some(algorithm) = args.first() else {
            return fault(span, "Hash needs an algorithm, as in HashAlgorithm_t.CRC32");
        };
        let crc = |polynomial| Function::Crc(Box::new(Crc::new(polynomial)));
        let name = self.enum_member(scope, algorithm)?;
        let function = match (&*name, args) {
            ("CUSTOM", [_, polynomial]) => match self.extern_arg(scope, polynomial)? {
                Extern::Polynomial(polynomial) => crc(polynomial),
                _ => return fault(polynomial.span, "expected a CRCPolynomial"),
            },
            ("CUSTOM", _) => return fault(span, "HashAlgorithm_t.CUSTOM needs a CRCPolynomial"),
            ("IDENTITY", [_]) => Function::Identity,
            ("XOR8", [_]) => Function::Xor(1),
            ("XOR16", [_]) => Function::Xor(2),
            ("XOR32", [_]) => Function::Xor(4),
            ("CRC8", [_]) => crc(Polynomial::CRC8),
            ("CRC16", [_]) => crc(Polynomial::CRC16),
            ("CRC32", [_]) => crc(Polynomial::CRC32),
            ("CRC64", [_]) => crc(Polynomial::CRC64),
            (other, _) => {
                let message = format!("HashAlgorithm_t.{other} is not supported by the model here");
                return fault(algorithm.span, message);
            }
        };
        let limit = HashSpec::limit(&function);
        if width > limit {
            let message = format!("the hash has {limit} bits, {width} are asked for");
            return fault(span, message);
        }
        let name = self.control_name(&decl.annotations, &decl.name);
        self.code.hashes.push(HashSpec { name, function, width });
        Ok(Extern::Hash(self.code.hashes.len() as u32 - 1))
    }

    /// The name of an enum constant.
    fn enum_member(&mut self, scope: &Rc<Scope>, expr: &Expr) -> Res<Rc<str>> {
        if let (value, Type::Enum(def)) = self.constant(scope, expr)?
            && let Some((name, _)) = def.members.iter().find(|(_, v)| *v == value)
        {
            return Ok(name.clone());
        }
        fault(expr.span, "expected a member of an enum")
    }

    fn counter_kind(&mut self, scope: &Rc<Scope>, expr: &Expr) -> Res<CounterKind> {
        match &*self.enum_member(scope, expr)? {
            "PACKETS" => Ok(CounterKind::Packets),
            "BYTES" => Ok(CounterKind::Bytes),
            "PACKETS_AND_BYTES" => Ok(CounterKind::PacketsAndBytes),
            _ => fault(expr.span, "expected a CounterType_t"),
        }
    }

    fn counter(&mut self, scope: &Rc<Scope>, decl: &InstanceDecl, args: &[&Expr]) -> Res<Extern> {
        let [size, kind] = args else { return fault(decl.ty.span, "Counter(size, kind)") };
        let size = self.count(scope, size)?;
        let kind = self.counter_kind(scope, kind)?;
        let name = self.control_name(&decl.annotations, &decl.name);
        self.code.counters.push(Counter { name, size, kind });
        Ok(Extern::Counter(self.code.counters.len() as u32 - 1))
    }

    /// A call that gives a value.
    pub(super) fn extern_value(
        &mut self,
        scope: &Rc<Scope>,
        object: &Extern,
        method: &Name,
        args: &[Arg],
        span: Span,
    ) -> Res<Typed> {
        let values: Vec<&Expr> = args.iter().map(|arg| &arg.value).collect();
        match (object, &*method.text, &values[..]) {
            (Extern::Hash(hash), "get", [data]) => {
                self.only_in(&[Stage::Control], span, "a hash")?;
                let data = self.data(scope, data)?;
                let width = self.code.hashes[*hash as usize].width;
                Ok((ir::Expr::Hash { hash: *hash, data }, Type::Bit(width)))
            }
            (Extern::Random(width), "get", []) => {
                Ok((ir::Expr::Random { width: *width }, Type::Bit(*width)))
            }
            (Extern::RegisterAction(action, output), "execute", [index]) => {
                self.execute(scope, *action, output, index, span)
            }
            (Extern::Register(_), "read" | "write", _) => {
                fault(span, "read and write registers with a RegisterAction")
            }
            (Extern::Checksum(_), "update", [data, rest @ ..]) => {
                self.only_in(&[Stage::Deparser], span, "update")?;
                let (list, data) = (data.span, self.checksum_data(scope, data)?);
                fields_and_zeros(&data, list)?;
                let zeros_as_ones = match rest {
                    [flag] => self.typed(scope, flag, &Type::Bool)?,
                    _ => ir::Expr::Const(0),
                };
                let zeros_as_ones = Box::new(zeros_as_ones);
                Ok((ir::Expr::ChecksumUpdate { data, zeros_as_ones }, Type::Bit(16)))
            }
            (Extern::Checksum(unit), "get", []) => {
                self.only_in(&[Stage::Parser], span, "get")?;
                Ok((ir::Expr::ChecksumGet(*unit), Type::Bit(16)))
            }
            (Extern::Checksum(_), "verify", []) => fault(
                span,
                "verify is not supported by the model: add the header and compare get() with 0xffff",
            ),
            (Extern::ParserCounter(slot), "is_zero", []) => {
                Ok((super::stmt::same(*slot, 0), Type::Bool))
            }
            (Extern::ParserCounter(slot), "is_negative", []) => {
                let (a, b) = (ir::Expr::Slot(*slot), ir::Expr::Const(0));
                let (a, b) = (Box::new(a), Box::new(b));
                Ok((ir::Expr::Op { op: Op::LtSigned, width: 8, a, b }, Type::Bool))
            }
            (_, text, _) => no_such_method(method.span, "this extern object", text),
        }
    }

    /// A call for its effect.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn extern_statement(
        &mut self,
        scope: &Rc<Scope>,
        object: &Extern,
        method: &Name,
        types: &[TypeExpr],
        args: &[Arg],
        span: Span,
        out: &mut Block,
    ) -> Res<()> {
        let values: Vec<&Expr> = args.iter().map(|arg| &arg.value).collect();
        match (object, &*method.text, &values[..]) {
            (Extern::Counter(counter), "count", [index]) => {
                self.only_in(&[Stage::Control], span, "counting")?;
                let (index, ty) = self.scalar(scope, index)?;
                if !matches!(ty, Type::Bit(_) | Type::AnyInt) {
                    return fault(span, format!("an index is a bit<W>, not {ty}"));
                }
                out.push(Stmt::Count { counter: *counter, index });
            }
            (Extern::DirectCounter(kind), "count", []) => {
                if self.inlining.is_empty() {
                    return fault(span, "a direct counter counts in the actions of its table");
                }
                out.push(Stmt::CountDirect(*kind));
            }
            (Extern::Checksum(unit), "add" | "subtract", [data]) => {
                self.only_in(&[Stage::Parser], span, "this checksum method")?;
                let subtract = &*method.text == "subtract";
                let data = self.checksum_data(scope, data)?;
                out.push(Stmt::ChecksumAdd { unit: *unit, data, subtract });
            }
            (Extern::Mirror, "emit", [session, rest @ ..]) if rest.len() < 2 => {
                let session = self.typed(scope, session, &Type::Bit(10))?;
                let data = self.emitted(scope, types, rest, span)?;
                out.push(Stmt::Mirror { session, data });
            }
            (Extern::Resubmit, "emit", rest) if rest.len() < 2 => {
                let data = self.emitted(scope, types, rest, span)?;
                let bits: u32 = data.fields.iter().map(|f| u32::from(f.width)).sum();
                if bits > 64 {
                    return fault(
                        span,
                        format!("a packet is resubmitted with 64 bits, not {bits}"),
                    );
                }
                out.push(Stmt::Resubmit { data });
            }
            (Extern::Digest(digest, ty), "pack", [data]) => {
                let (list, data) = (data.span, self.data_of(scope, data, ty)?);
                fields_and_zeros(&data, list)?;
                out.push(Stmt::Digest { digest: *digest, data });
            }
            (Extern::ParserPriority, "set", [value]) => {
                self.typed(scope, value, &Type::Bit(3))?;
            }
            (Extern::ParserCounter(slot), "set" | "increment" | "decrement", [value]) => {
                let value = match self.scalar(scope, value)? {
                    (value, Type::Bit(8)) => value,
                    value => super::expr::convert(value, &Type::Int(8), span)?,
                };
                let now = ir::Expr::Slot(*slot);
                let value = match &*method.text {
                    "set" => value,
                    "increment" => super::expr::operation(Op::Add, 8, now, value),
                    _ => super::expr::operation(Op::Sub, 8, now, value),
                };
                out.push(Stmt::Set { slot: *slot, value });
            }
            _ => {
                let (value, _) = self.extern_value(scope, object, method, args, span)?;
                out.push(Stmt::Do(value));
            }
        }
        Ok(())
    }

    /// The header in front of a mirrored or resubmitted packet.
    fn emitted(
        &mut self,
        scope: &Rc<Scope>,
        types: &[TypeExpr],
        args: &[&Expr],
        span: Span,
    ) -> Res<Data> {
        let data = match (args, types) {
            ([], _) => Data::default(),
            ([data], [ty]) => {
                let ty = self.resolve(scope, ty)?;
                self.data_of(scope, data, &ty)?
            }
            ([data, ..], _) => {
                if matches!(data.kind, ExprKind::List(_)) {
                    return fault(span, "say the type of this header: emit<header_t>(...)");
                }
                self.data(scope, data)?
            }
        };
        whole_bytes(&data, span, 8)?;
        fields_and_zeros(&data, span)?;
        Ok(data)
    }

    fn checksum_data(&mut self, scope: &Rc<Scope>, data: &Expr) -> Res<Data> {
        let span = data.span;
        let data = self.data(scope, data)?;
        whole_bytes(&data, span, 8)?;
        Ok(data)
    }
}

/// What a deparser computes from or puts in front of a packet comes from containers.
fn fields_and_zeros(data: &Data, span: Span) -> Res<()> {
    if data.fields.iter().any(|field| matches!(field.value, ir::Expr::Const(1..))) {
        let message = "a deparser takes fields and zeros, no other constants: put the constant \
                       into a metadata field";
        return fault(span, message);
    }
    Ok(())
}

fn whole_bytes(data: &Data, span: Span, unit: u32) -> Res<()> {
    let bits: u32 = data.fields.iter().map(|f| u32::from(f.width)).sum();
    if !bits.is_multiple_of(unit) {
        return fault(span, format!("{bits} bits are not a whole number of bytes"));
    }
    Ok(())
}

/// Names and widths of the scalars of a type.
fn field_names(prefix: &str, ty: &Type, out: &mut Vec<(String, u16)>) {
    let name = |part: &str| {
        if prefix.is_empty() { part.to_owned() } else { format!("{prefix}.{part}") }
    };
    match ty {
        Type::Header(fields) | Type::Struct(fields) => {
            for field in &fields.fields {
                field_names(&name(&field.name), &field.ty, out);
            }
        }
        Type::Tuple(items) => {
            for (index, item) in items.iter().enumerate() {
                field_names(&name(&index.to_string()), item, out);
            }
        }
        ty => out.push((prefix.to_owned(), ty.width().unwrap_or(0))),
    }
}
