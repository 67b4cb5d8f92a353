//! Any bytes as what a Tofino's driver answers, as the description of its tables, and as a
//! collection packet: no panic, and nothing is gathered that no packet has said.
//!
//! Run with `cargo +nightly fuzz run fuzz-agent-driver` in `p4src/agent/`. Real answers for a start
//! are written to the folder that `CALUMMA_SEEDS` names.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use calumma_bfrt::proto::{
    EntityKind, GetForwardingPipelineConfigResponse, ReadResponse, StreamMessageResponse,
    WriteResponse,
};
use calumma_bfrt::{Info, Value};
use calumma_switchd::collection::{Clearing, Gathering, Groups, Record, Source};
use calumma_tna::Program;
use libfuzzer_sys::fuzz_target;
use prost::Message;

/// That of a program with registers and counters of every kind.
static DESCRIPTION: OnceLock<Vec<u8>> = OnceLock::new();

fn description() -> &'static [u8] {
    DESCRIPTION.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../model/tests/programs");
        let program = Program::load(folder.join("registers.p4"), &[]).unwrap();
        calumma_tna_driver::description(&program)
    })
}

/// What switchd makes of an answer to a read.
fn read(info: &Info, answer: &ReadResponse) {
    for entity in &answer.entities {
        let Some(EntityKind::TableEntry(entry)) = &entity.entity else { continue };
        let Some(table) = info.table_by_id(entry.table_id) else { continue };
        if let Some((_, values)) = table.element(entry) {
            let zeros = table.zeros().unwrap();
            assert_eq!(values.len(), zeros.fields.len());
        }
        for name in ["f1", "first", "second", "$COUNTER_SPEC_PKTS", "$PORT_UP"] {
            if let Some(Value::Word(word)) = table.value(entry, name) {
                assert!(word.len() <= answer.encoded_len());
            }
        }
    }
}

/// The sources that a program may have.
fn sources() -> [Source; 3] {
    let source = |number, record| {
        let registers = vec!["a".to_owned(), "b".to_owned()];
        Source { number, registers, elements: 700, groups: Groups::ByElement, record }
    };
    [source(1, Record::Counter), source(2, Record::Words(2)), source(3, Record::Pairs(2))]
}

fuzz_target!(
    init: {
        if let Some(folder) = std::env::var_os("CALUMMA_SEEDS") {
            let folder = Path::new(&folder);
            std::fs::write(folder.join("bfrt.json"), description()).unwrap();
            for (at, source) in sources().iter().enumerate() {
                let asked = Gathering::new(source, 1, 7).requests();
                let cleared = Clearing::new(source, 0, 7).requests();
                for (number, packet) in asked.iter().chain(&cleared).enumerate() {
                    std::fs::write(folder.join(format!("packet-{at}-{number}")), packet).unwrap();
                }
            }
        }
    },
    |input: &[u8]| {
        if let Ok(info) = Info::from_json(&[input]) {
            for table in info.tables() {
                let _ = (table.zeros(), table.index_key(input.len() as u64));
            }
        }
        let info = Info::from_json(&[description()]).unwrap();
        if let Ok(answer) = ReadResponse::decode(input) {
            read(&info, &answer);
        }
        let _ = WriteResponse::decode(input);
        let _ = StreamMessageResponse::decode(input);
        let _ = GetForwardingPipelineConfigResponse::decode(input);

        for source in sources() {
            let mut gathering = Gathering::new(&source, 1, 7);
            let mut clearing = Clearing::new(&source, 0, 7);
            let (asked, cleared) = (gathering.requests(), clearing.requests());
            let _ = (gathering.take(input), clearing.take(input));
            // One packet has room for a part of the elements.
            assert!(!gathering.is_complete() && gathering.words().is_none());
            assert!(!asked.is_empty() && !cleared.is_empty());
        }
    }
);
