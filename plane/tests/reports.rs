//! Telemetry reports, held against datagrams that were made by hand from the specification.

use calumma_plane::int::UNKNOWN;
use calumma_plane::int::report::{GROUP, Reasons, Summary, put, put_group};
use serde_json::Value;

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hexadecimal digits");
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a byte");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn number(of: &Value) -> u32 {
    of.as_u64().and_then(|number| number.try_into().ok()).expect("a number")
}

fn summary(of: &Value) -> Summary {
    let mut reasons = Reasons::default();
    for name in of["reasons"].as_array().expect("reasons") {
        let reason = match name.as_str().expect("a reason") {
            "inflated" => Reasons::INFLATED,
            "path_change" => Reasons::PATH_CHANGE,
            "loop" => Reasons::LOOP,
            "heavy_hitter" => Reasons::HEAVY_HITTER,
            "tracked" => Reasons::TRACKED,
            other => panic!("{other} is no reason"),
        };
        reasons.add(reason, true);
    }
    Summary {
        reasons,
        domain: number(&of["domain"]) as u16,
        is_dropped: of["dropped"] == true,
        has_stack: of["stack"] == true,
        inflated: of["inflated"].as_array().map(|of| (number(&of[0]), number(&of[1]))),
        latency_ns: of["latency_ns"].as_u64().map_or(UNKNOWN, |ns| ns as u32),
        ingress_ns: of["ingress_ns"].as_u64().unwrap_or(u64::MAX),
        egress_ns: of["egress_ns"].as_u64().unwrap_or(u64::MAX),
    }
}

#[test]
fn reports_are_written_as_the_specification_has_them() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/reports.json");
    let all = std::fs::read(path).expect("golden datagrams");
    let all: Vec<Value> = serde_json::from_slice(&all).expect("JSON");
    assert_eq!(all.len(), 3);
    for case in &all {
        let (mut out, group) = (Vec::new(), &case["group"]);
        let numbers = (number(&group["hardware"]) as u8, number(&group["sequence"]));
        put_group(&mut out, numbers, number(&group["node"]));
        assert_eq!(out.len(), GROUP);
        for of in case["reports"].as_array().expect("reports") {
            let before = out.len();
            put(&mut out, &summary(of), &bytes(&of["packet"]));
            assert_eq!(out.len() - before, 4 * (1 + usize::from(out[before + 1])));
        }
        assert_eq!(out, bytes(&case["datagram"]), "{}", case["name"]);
    }
}

/// A length of 255 would say that the report ends with the datagram.
#[test]
fn the_longest_packet_is_cut_to_what_a_report_can_say_the_length_of() {
    let of = serde_json::json!({ "reasons": ["inflated"], "domain": 7, "inflated": [1, 2] });
    let mut out = Vec::new();
    put(&mut out, &summary(&of), &[0x45; 2000]);
    assert_eq!((out[1], out[2], out.len()), (254, 3, 4 * 255));
    put_group(&mut out, (64, 1 << 22), 1);
    assert_eq!(out[4 * 255..4 * 255 + 4], [0x20, 0, 0, 0], "numbers stay within their bits");
}
