//! `Pipeline(...) pipe; Switch(pipe) main;`: the six blocks of a pipe, ingress first.

use std::rc::Rc;

use super::scope::{Binding, Instance, Place, Scope};
use super::{Lowerer, Stage, paths};
use crate::ir::{Gress, IntrinsicHeader, TrafficManager};
use crate::source::{Res, Span, fault};
use crate::syntax::ast::{Arg, ControlDecl, Expr, ExprKind, Name, Param, ParserDecl, TypeKind};
use crate::types::Type;

/// The values that the blocks of one gress share, by type name.
#[derive(Default)]
struct Shared {
    /// Headers, metadata and every struct of intrinsic metadata.
    places: Vec<(Role, Place)>,
}

#[derive(PartialEq, Clone)]
enum Role {
    Headers,
    Metadata,
    Intrinsic(Rc<str>),
}

impl Shared {
    fn find(&self, role: &Role) -> Option<&Place> {
        self.places.iter().find(|(r, _)| r == role).map(|(_, place)| place)
    }

    /// The slot of a field of intrinsic metadata.
    fn field(&self, ty: &str, field: &str) -> Option<u32> {
        let place = self.find(&Role::Intrinsic(ty.into()))?;
        let (Type::Header(fields) | Type::Struct(fields)) = &place.ty else { return None };
        Some(place.slot + fields.field(field)?.offset)
    }
}

/// Types of intrinsic metadata: (type, ingress, egress).
const INTRINSIC: &[(&str, bool, bool)] = &[
    ("ingress_intrinsic_metadata_t", true, false),
    ("ingress_intrinsic_metadata_from_parser_t", true, false),
    ("ingress_intrinsic_metadata_for_deparser_t", true, false),
    ("ingress_intrinsic_metadata_for_tm_t", true, false),
    ("egress_intrinsic_metadata_t", false, true),
    ("egress_intrinsic_metadata_from_parser_t", false, true),
    ("egress_intrinsic_metadata_for_deparser_t", false, true),
    ("egress_intrinsic_metadata_for_output_port_t", false, true),
];

impl Lowerer {
    /// Elaborates everything from `main` on.
    pub(super) fn main(&mut self) -> Res<()> {
        let globals = self.globals.clone();
        let Some((Binding::Package(main), _)) = globals.find("main") else {
            return fault(Span::default(), "the program has no `Switch(pipe) main;`");
        };
        if !matches!(&main.ty.kind, TypeKind::Named(name, _) if &*name.text == "Switch") {
            return fault(main.ty.span, "`main` is a Switch");
        }
        let [pipe] = &main.args[..] else {
            return fault(main.ty.span, "the model has one pipe: Switch(pipe) main;");
        };
        let package = match &pipe.value.kind {
            ExprKind::Path(name) => globals.get(name)?,
            _ => return fault(pipe.value.span, "expected the name of a Pipeline"),
        };
        let Binding::Package(pipeline) = package else {
            return fault(pipe.value.span, "expected the name of a Pipeline");
        };
        let blocks: &[Arg; 6] = match pipeline.args[..].try_into() {
            Ok(blocks) => blocks,
            Err(_) => {
                let message = "a Pipeline has six blocks: ingress parser, control and deparser, \
                               then those of the egress";
                return fault(pipeline.ty.span, message);
            }
        };
        self.code.ingress = self.gress(&globals, &blocks[..3], false)?;
        self.code.egress = self.gress(&globals, &blocks[3..], true)?;
        Ok(())
    }

    fn gress(&mut self, globals: &Rc<Scope>, blocks: &[Arg], egress: bool) -> Res<Gress> {
        let first_slot = self.next_slot as usize;
        self.egress = egress;
        self.reads_parser_err = false;
        let prefix = if egress { "egress" } else { "ingress" };
        let mut shared = Shared::default();
        for (name, ingress_has, egress_has) in INTRINSIC {
            if if egress { *egress_has } else { *ingress_has } {
                let Some((Binding::Type(ty), _)) = globals.find(name) else {
                    return fault(Span::default(), "the program does not include <tna.p4>");
                };
                let place = self.allocate(ty);
                shared.places.push((Role::Intrinsic((*name).into()), place));
            }
        }
        let from_parser = format!("{prefix}_intrinsic_metadata_from_parser_t");
        self.parser_err = shared.field(&from_parser, "parser_err");

        self.stage = Stage::Parser;
        let parser = self.block_parser(globals, &blocks[0], &mut shared)?;
        self.stage = Stage::Control;
        let control = self.block_control(globals, &blocks[1], &mut shared)?;
        paths::check(&self.code, &control)?;
        self.stage = Stage::Deparser;
        let deparser = self.block_control(globals, &blocks[2], &mut shared)?;
        self.stage = Stage::Control;

        let for_deparser = format!("{prefix}_intrinsic_metadata_for_deparser_t");
        let field = |ty: &str, name: &str| shared.field(ty, name).unwrap_or_default();
        let to_tm = if egress {
            TrafficManager::default()
        } else {
            let tm = "ingress_intrinsic_metadata_for_tm_t";
            TrafficManager {
                ucast_egress_port: field(tm, "ucast_egress_port"),
                bypass_egress: field(tm, "bypass_egress"),
                copy_to_cpu: field(tm, "copy_to_cpu"),
                mcast_grp_a: field(tm, "mcast_grp_a"),
                qid: field(tm, "qid"),
            }
        };
        let header = self.intrinsic_header(&shared, prefix)?;
        Ok(Gress {
            parser,
            control,
            deparser,
            slots: first_slot..self.next_slot as usize,
            reads_parser_err: self.reads_parser_err,
            parser_err: field(&from_parser, "parser_err"),
            global_tstamp: field(&from_parser, "global_tstamp"),
            drop_ctl: field(&for_deparser, "drop_ctl"),
            to_tm,
            header,
        })
    }

    /// Where the fields of the intrinsic header lie that the switch fills.
    fn intrinsic_header(&mut self, shared: &Shared, prefix: &str) -> Res<IntrinsicHeader> {
        let name = format!("{prefix}_intrinsic_metadata_t");
        let Some(place) = shared.find(&Role::Intrinsic(name.into())) else {
            return fault(Span::default(), "the program does not include <tna.p4>");
        };
        let layout = self.layout_of(&place.ty, Span::default())?;
        let layout = &self.code.layouts[layout as usize];
        let Type::Header(fields) = &place.ty else {
            return fault(Span::default(), "intrinsic metadata is a header");
        };
        let field = |name: &str| {
            let index = fields.fields.iter().position(|f| &*f.name == name);
            index.map(|index| layout.fields[index]).unwrap_or_default()
        };
        Ok(IntrinsicHeader {
            bits: layout.bits,
            port: field(&format!("{prefix}_port")),
            resubmit_flag: field("resubmit_flag"),
            mac_tstamp: field("ingress_mac_tstamp"),
            rid: field("egress_rid"),
            qid: field("egress_qid"),
            length: field("pkt_length"),
        })
    }

    fn block_parser(&mut self, globals: &Rc<Scope>, block: &Arg, shared: &mut Shared) -> Res<u32> {
        let (name, args) = constructed(&block.value)?;
        let Binding::Parser(decl) = globals.get(name)? else {
            return fault(name.span, format!("`{}` is no parser", name.text));
        };
        let instance: Rc<Instance<ParserDecl>> =
            self.parser_instance(globals, &decl, &[], &decl.name, args, name.span)?;
        let params = self.block_params(&decl.params, shared, name.span)?;
        self.parser_code(&instance, &params)
    }

    fn block_control(
        &mut self,
        globals: &Rc<Scope>,
        block: &Arg,
        shared: &mut Shared,
    ) -> Res<crate::ir::Block> {
        let (name, args) = constructed(&block.value)?;
        let Binding::Control(decl) = globals.get(name)? else {
            return fault(name.span, format!("`{}` is no control", name.text));
        };
        let instance: Rc<Instance<ControlDecl>> =
            self.control_instance(globals, &decl, &[], &decl.name, args, name.span)?;
        let params = self.block_params(&decl.params, shared, name.span)?;
        self.control_body(&instance, &params)
    }

    /// The parameters of a block: the packet, then headers and metadata, and intrinsic metadata by
    /// type.
    fn block_params(
        &mut self,
        params: &[Param],
        shared: &mut Shared,
        span: Span,
    ) -> Res<Vec<Binding>> {
        let globals = self.globals.clone();
        let mut own = [Role::Headers, Role::Metadata].into_iter();
        let mut out = Vec::new();
        for param in params {
            if let TypeKind::Named(name, _) = &param.ty.kind
                && matches!(&*name.text, "packet_in" | "packet_out")
            {
                out.push(Binding::Packet);
                continue;
            }
            let ty = self.resolve(&globals, &param.ty)?;
            let role = match &ty {
                Type::Struct(f) | Type::Header(f) if INTRINSIC.iter().any(|i| i.0 == &*f.name) => {
                    Role::Intrinsic(f.name.clone())
                }
                _ => match own.next() {
                    Some(role) => role,
                    None => return fault(param.name.span, "this parameter has no meaning in TNA"),
                },
            };
            let place = match shared.find(&role) {
                Some(place) if place.ty == ty => place.clone(),
                Some(place) => {
                    let message = format!("expected {} as in the parser, found {ty}", place.ty);
                    return fault(param.name.span, message);
                }
                None if matches!(role, Role::Intrinsic(_)) => {
                    return fault(param.name.span, format!("{ty} belongs to the other gress"));
                }
                None => {
                    let place = self.allocate(ty);
                    shared.places.push((role, place.clone()));
                    place
                }
            };
            let read_only = param.direction == crate::syntax::ast::Direction::In;
            out.push(Binding::Place(Place { writable: !read_only, ..place }));
        }
        if out.len() < 2 {
            return fault(span, "this block has too few parameters");
        }
        Ok(out)
    }
}

/// `Name(args)`
fn constructed(expr: &Expr) -> Res<(&Name, &[Arg])> {
    if let ExprKind::Call(callee, _, args) = &expr.kind
        && let ExprKind::Path(name) = &callee.kind
    {
        return Ok((name, args));
    }
    fault(expr.span, "expected a parser or control, as in Ingress()")
}
