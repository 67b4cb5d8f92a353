//! Programs that must not load: each error names the line and says what is wrong.
//!
//! The line at fault ends with `// HERE`.

use calumma_tna::{LoadError, Program};

/// A whole program with these declarations and this body in its ingress control.
fn program(globals: &str, locals: &str, apply: &str, parser: &str) -> String {
    format!(
        "#include <core.p4>
#include <tna.p4>
header data_t {{ bit<8> x; bit<8> y; bit<16> z; bit<32> a; bit<32> b; bit<32> c; }}
struct headers_t {{ data_t data; data_t[2] stack; }}
struct metadata_t {{ bit<32> m; bit<32> n; bool flag; }}
struct pair_t {{ bit<32> lo; bit<32> hi; }}
{globals}
parser IngressParser(packet_in pkt, out headers_t hdr, out metadata_t meta,
                     out ingress_intrinsic_metadata_t ig_intr_md) {{
    state start {{
        pkt.extract(ig_intr_md);
        pkt.advance(PORT_METADATA_SIZE);
        {parser}
        transition accept;
    }}
}}
control Ingress(inout headers_t hdr, inout metadata_t meta,
                in ingress_intrinsic_metadata_t ig_intr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {{
    {locals}
    apply {{
        {apply}
    }}
}}
control IngressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t meta) {{
    apply {{ pkt.emit(hdr); }}
}}
parser EgressParser(packet_in pkt, out headers_t hdr, out metadata_t meta,
                    out egress_intrinsic_metadata_t eg_intr_md) {{
    state start {{ pkt.extract(eg_intr_md); transition accept; }}
}}
control Egress(inout headers_t hdr, inout metadata_t meta,
               in egress_intrinsic_metadata_t eg_intr_md) {{
    apply {{}}
}}
control EgressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t meta) {{
    apply {{ pkt.emit(hdr); }}
}}
Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
"
    )
}

/// The program does not load; the error stands at `// HERE` and contains `message`.
fn refused(text: &str, message: &str) {
    let line = (1..).zip(text.lines()).find(|(_, line)| line.contains("// HERE"));
    let (wanted, source) = line.expect("a line marked HERE");
    match Program::from_text("test.p4", text, &[]) {
        Ok(_) => panic!("loaded, but should not: {source}"),
        Err(error @ LoadError::Program { .. }) => {
            let full = error.to_string();
            assert!(full.contains(message), "`{full}` does not contain `{message}`");
            assert_eq!(error.line(), Some(wanted), "{full}, expected at: {source}");
            assert!(full.starts_with("test.p4:"), "{full}");
        }
        Err(error) => panic!("{error}"),
    }
}

fn body(apply: &str, message: &str) {
    refused(&program("", "", apply, ""), message);
}

fn locals(locals: &str, apply: &str, message: &str) {
    refused(&program("", locals, apply, ""), message);
}

/// A register action with this body; `T` is its type.
fn action(ty: &str, apply: &str, message: &str) {
    let locals = format!(
        "Register<{ty}, bit<8>>(16) cells;
    RegisterAction<{ty}, bit<8>, bit<32>>(cells) run = {{
        void apply(inout {ty} value, out bit<32> rv) {{ // HERE
            {apply}
        }}
    }};"
    );
    let text = program("", &locals, "meta.m = run.execute(hdr.data.x);", "");
    refused(&text, message);
}

#[test]
fn the_skeleton_itself_loads() {
    Program::from_text("test.p4", &program("", "", "", ""), &[]).unwrap();
}

#[test]
fn syntax_errors_are_found_where_they_are() {
    body("meta.m = ; // HERE", "expected an expression, found `;`");
    body("meta.m = 1\n } // HERE", "expected `;`, found `}`");
    body("if (true { } // HERE", "expected `)`");
    body("meta.m + 1; // HERE", "expected `=` or a call");
    refused(&program("header_union u { } // HERE", "", "", ""), "header unions are not supported");
    refused(&program("header v { varbit<8> x; } // HERE", "", "", ""), "`varbit` is not supported");
}

#[test]
fn types_must_agree() {
    body("meta.m = hdr.data.x; // HERE", "expected bit<32>, found bit<8>");
    body("meta.m = hdr.data.a + hdr.data.z; // HERE", "the operands differ: bit<32> and bit<16>");
    body("if (hdr.data.x) { } // HERE", "expected bool, found bit<8>");
    body("hdr.data.x = 256; // HERE", "256 does not fit in bit<8>");
    body("hdr.data.x = 8w300; // HERE", "300 does not fit in 8 bits");
    body("meta.m = (bit<32>)(int<8>)hdr.data.x; // HERE", "a int<8> can't be cast to bit<32>");
    body("hdr.data.x = hdr.data.a[8:1][9:2]; // HERE", "slice [9:2] does not lie in bit<8>");
    body("hdr.data = { 1, 2 }; // HERE", "header data_t has 6 fields");
    body("meta.m = hdr; // HERE", "a value of type struct headers_t is no single value");
    body("meta.flag = meta.flag + meta.flag; // HERE", "no meaning for bool");
}

#[test]
fn names_must_be_known_and_writable() {
    body("meta.q = 1; // HERE", "struct metadata_t has no field `q`");
    body("nothing = 1; // HERE", "`nothing` is not declared");
    body("ig_intr_md.ingress_port = 1; // HERE", "this can only be read");
    body("hdr.data.nope(); // HERE", "has no method `nope`");
    body("missing.apply(); // HERE", "`missing` is not declared");
    body("bit<8> x = 1; bit<8> x = 2; // HERE", "`x` is declared twice");
    body("hdr.stack[2].x = 1; // HERE", "the stack has 2 headers");
    locals(
        "action a(bit<8> p) { p = 1; } // HERE\n table t { actions = { a; } }",
        "t.apply();",
        "this can only be read",
    );
}

#[test]
fn what_the_hardware_can_not_do_is_refused() {
    body("meta.m = hdr.data.a * hdr.data.b; // HERE", "Tofino has no multiplication");
    body("meta.m = hdr.data.a / 3; // HERE", "Tofino has no division");
    refused(&program("", "", "", "if (true) { } // HERE"), "use select instead");
    refused(&program("header odd_t { bit<7> x; } // HERE", "", "", ""), "needs whole bytes");
    locals(
        "table t { key = { hdr.data.a : range; } actions = { NoAction; } } // HERE",
        "t.apply();",
        "ranges of at most 20 bits",
    );
    locals(
        "action go() {} table t { key = { hdr.data.a : lpm; hdr.data.b : ternary; } actions = { go; } } // HERE",
        "t.apply();",
        "make it ternary as well",
    );
}

#[test]
fn what_the_model_does_not_support_is_named() {
    locals("Meter<bit<8>>(16, MeterType_t.BYTES) m; // HERE", "", "`Meter` is not supported");
    locals("Hash<bit<32>>(HashAlgorithm_t.RANDOM) h; // HERE", "", "RANDOM is not supported");
    locals("bit<200> wide; // HERE", "", "at most 128 bits, not 200");
    body("ig_tm_md.deflect_on_drop = 1; // HERE", "`deflect_on_drop` is not supported");
    body("verify(true, error.NoError); // HERE", "Tofino's parser has no `verify`");
    locals(
        "table t { key = { hdr.data.a : selector; } actions = { NoAction; } } // HERE",
        "",
        "match kind `selector` is not supported",
    );
    locals(
        "table t { actions = { NoAction; }\n idle_timeout = true; // HERE\n }",
        "",
        "property `idle_timeout` is not supported",
    );
    locals(
        "CRCPolynomial<bit<32>>(1, true, true, false, 0, 0) p; // HERE",
        "",
        "`msb` = true is not supported",
    );
}

#[test]
fn a_stateful_alu_makes_two_comparisons() {
    action(
        "bit<32>",
        "if (value == 1) { value = 2; } else if (value == 2) { value = 3; } \
         else if (value == 3) { value = 2; }",
        "3 different comparisons, 2 are possible",
    );
    action(
        "bit<32>",
        "if (value + hdr.data.a < hdr.data.b) { value = 0; }",
        "one register value and one field",
    );
    action("pair_t", "if (value.lo < value.hi) { value.lo = 0; }", "one register value");
}

#[test]
fn a_stateful_alu_takes_two_inputs() {
    action(
        "pair_t",
        "if (hdr.data.c == 1) { value.lo = value.lo + hdr.data.a; value.hi = value.hi + hdr.data.b; }",
        "3 packet or metadata values, 2 are possible",
    );
    action(
        "bit<32>",
        "value = hdr.data.a + hdr.data.b;",
        "at most one register value and one other",
    );
    action("bit<32>", "value = value + hdr.data.a + hdr.data.b;", "does not fit");
}

#[test]
fn a_stateful_alu_computes_each_value_once() {
    action("pair_t", "value.hi = value.lo + value.hi;", "at most one register value");
    action("bit<32>", "value = value + 1; value = value + 2;", "reads a value after writing it");
    action("bit<32>", "value = value << 1;", "no such operation");
    action("bit<32>", "bit<32> t = value; value = t + 1;", "no local variables");
    action("bit<32>", "meta.n = value;", "no local variables");
    action("pair_t", "rv = value.lo + 1;", "its output needs an operation of its own");
    action(
        "pair_t",
        "if (value.lo == 0) { rv = value.lo; } else { rv = value.hi; }",
        "more than one output",
    );
    action(
        "bit<32>",
        "if (value == 0) { value = 7; } else if (value == 7) { value = 9; } else { value = 11; }",
        "more than two ways",
    );
}

#[test]
fn a_register_fits_a_stateful_alu() {
    locals("Register<bit<64>, bit<8>>(16) r; // HERE", "", "does not fit a stateful ALU");
    locals("Register<bit<12>, bit<8>>(16) r; // HERE", "", "does not fit a stateful ALU");
    refused(
        &program(
            "struct three_t { bit<8> a; bit<8> b; bit<8> c; }",
            "Register<three_t, bit<8>>(16) r; // HERE",
            "",
            "",
        ),
        "does not fit a stateful ALU",
    );
    let one = "RegisterAction<bit<8>, bit<8>, bit<8>>(r) NAME = { void apply(inout bit<8> value) { value = 1; } };\n";
    let mut text = "Register<bit<8>, bit<8>>(16) r;\n".to_owned();
    for name in ["a", "b", "c", "d"] {
        text.push_str(&one.replace("NAME", name));
    }
    text.push_str(&one.replace("NAME", "e").replace('\n', " // HERE"));
    locals(&text, "", "more than 4 register actions");
}

#[test]
fn a_packet_accesses_a_register_once() {
    let cells = "Register<bit<8>, bit<8>>(16) r;
        RegisterAction<bit<8>, bit<8>, bit<8>>(r) bump = { void apply(inout bit<8> value, out bit<8> rv) { value = value + 1; rv = value; } };
        RegisterAction<bit<8>, bit<8>, bit<8>>(r) get = { void apply(inout bit<8> value, out bit<8> rv) { rv = value; } };
        action go() { bump.execute(1); }
        table t { key = { hdr.data.x : exact; } actions = { go; NoAction; } }";
    let twice = "a packet may access register Ingress.r twice";
    locals(cells, "bump.execute(0);\n get.execute(0); // HERE", twice);
    locals(cells, "t.apply();\n if (hdr.data.x == 1) { get.execute(0); } // HERE", twice);
    locals(cells, "hdr.data.x = bump.execute(0) + get.execute(1); // HERE", twice);
    let exclusive = "if (hdr.data.x == 1) { bump.execute(0); } else { t.apply(); }";
    Program::from_text("test.p4", &program("", cells, exclusive, ""), &[]).unwrap();
}

#[test]
fn a_register_belongs_to_one_gress() {
    let text = program(
        "Register<bit<8>, bit<8>>(16) shared;
control Bump() {
    RegisterAction<bit<8>, bit<8>, bit<8>>(shared) bump = { void apply(inout bit<8> value) { value = value + 1; } };
    apply { bump.execute(0); } // HERE
}",
        "",
        "Bump.apply();",
        "",
    )
    .replace("    apply {}\n", "    apply { Bump.apply(); }\n");
    refused(&text, "can't be used in ingress and egress both");
}

#[test]
fn tables_and_entries_must_fit() {
    let table = |rest: &str| {
        format!(
            "action set(bit<8> v) {{ hdr.data.y = v; }}\n table t {{ key = {{ hdr.data.x : exact; }} actions = {{ set; }}\n {rest}\n }}"
        )
    };
    locals(&table("const entries = { 1 : set(300); } // HERE"), "", "300 does not fit in bit<8>");
    locals(&table("const entries = { (1, 2) : set(3); } // HERE"), "", "2 values for 1 key fields");
    locals(&table("const entries = { 1 &&& 3 : set(3); } // HERE"), "", "matched otherwise");
    locals(&table("const entries = { 1 : other(3); } // HERE"), "", "`other` is no action of this");
    locals(&table("default_action = set(); // HERE"), "", "argument `v` is missing");
    locals(
        "table t { key = { hdr.data.x : exact; } actions = { NoAction; } size = 1; const entries = { 1 : NoAction(); 2 : NoAction(); } } // HERE",
        "",
        "2 entries, but size is 1",
    );
}

#[test]
fn parsers_name_states_that_exist() {
    let text =
        program("", "", "", "").replacen("transition accept;", "transition nowhere; // HERE", 1);
    refused(&text, "there is no state `nowhere`");
    let text = program("", "", "", "").replacen(
        "transition accept;",
        "transition select(hdr.data.x) { (1, 2) : accept; } // HERE",
        1,
    );
    refused(&text, "a list is no single value");
}

#[test]
fn an_instance_is_applied_twice_only_with_the_same_arguments() {
    let text = program(
        "control Inc(inout bit<32> v) { apply { v = v + 1; } }",
        "Inc() inc;",
        "inc.apply(meta.m); inc.apply(meta.m);\n inc.apply(meta.n); // HERE",
        "",
    );
    refused(&text, "declare a second instance");
}

#[test]
fn preprocessor_errors_have_their_line() {
    refused(&program("#include \"missing.p4\" // HERE", "", "", ""), "missing.p4");
    refused(&program("#error not like this // HERE", "", "", ""), "#error not like this");
    refused(&program("#if 1 // HERE\n#else", "", "", ""), "no #endif");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Program::load("/nowhere/edge.p4", &[]).unwrap_err();
    assert!(error.to_string().starts_with("/nowhere/edge.p4: "), "{error}");
}

#[test]
fn a_deparser_takes_fields_and_zeros() {
    let with = |instance: &str, statement: &str| {
        let deparser = format!("{instance} apply {{ {statement} // HERE\n pkt.emit(hdr); }}");
        program("", "", "", "").replacen("apply { pkt.emit(hdr); }", &deparser, 1)
    };
    let checksum =
        |list: &str| with("Checksum() sum;", &format!("hdr.data.z = sum.update({list});"));
    Program::from_text("test.p4", &checksum("{ hdr.data.a, 8w0, hdr.data.x }"), &[]).unwrap();
    refused(&checksum("{ hdr.data.a, 8w1, hdr.data.x }"), "no other constants");
    let copy = "copy.emit<data_t>(10w1, { 8w2, 0, 0, 0, 0, 0 });";
    refused(&with("Mirror() copy;", copy), "no other constants");
}
