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
    assert!(page.contains("Skipped: there is no no-captures-here/backbone-65k.pcap"));
    let unknown = produce(&figures, &setup, "figure-99", &out).unwrap_err();
    assert!(unknown.to_string().contains("chamelemon-04"), "{unknown}");
    fs::remove_dir_all(&out).unwrap();
}
