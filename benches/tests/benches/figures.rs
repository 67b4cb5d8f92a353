//! `cargo xtask figures --quick`, on what a machine without captures has.

use std::fs;
use std::path::PathBuf;

use calumma_benches::figures::{Setup, table};
use calumma_figures::produce;

#[test]
fn every_figure_is_measured_drawn_and_set_beside_its_claim() {
    let out = std::env::temp_dir().join(format!("calumma-figures-{}", std::process::id()));
    let setup = Setup { data: PathBuf::from("no-captures-here"), quick: true };
    let figures = table();
    produce(&figures, &setup, "", &out).unwrap();
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    for figure in &figures {
        assert!(page.contains(&format!("<section id=\"{}\">", figure.name)), "{}", figure.name);
        let file = |ending: &str| fs::read_to_string(out.join(figure.name).with_extension(ending));
        // Figures of captures have nothing to draw without them, and say so.
        if ["backbone", "mixed"].iter().any(|name| figure.name.contains(name)) {
            assert!(file("svg").is_err() && file("csv").is_err(), "{}", figure.name);
            continue;
        }
        assert!(file("svg").unwrap().trim_end().ends_with("</svg>"), "{}", figure.name);
        assert!(file("csv").unwrap().lines().count() > 1, "{}", figure.name);
    }
    // A header of 16 bytes, and 8 for each switch that there is room for.
    let named = fs::read_to_string(out.join("sketchint-mtu.csv")).unwrap();
    for mtu in [1500, 9000] {
        for (room, switches) in [(48, 4), (47, 3), (40, 3), (39, 2), (24, 1), (23, 0), (0, 0)] {
            let point = format!("8 bytes a hop\",{},{switches},,\n", mtu - room);
            assert!(named.contains(&point), "{point}");
        }
    }
    assert!(page.contains("Skipped: there is no no-captures-here/backbone-65k.pcap"));
    let unknown = produce(&figures, &setup, "figure-99", &out).unwrap_err();
    assert!(unknown.to_string().contains("chamelemon-04"), "{unknown}");
    fs::remove_dir_all(&out).unwrap();
}
