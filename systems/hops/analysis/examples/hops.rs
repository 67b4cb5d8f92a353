//! The product's programs, with `hops` beside ChameleMon. The name it is started by says which:
//!
//! ```text
//! cargo build --example hops
//! ln -s target/debug/examples/hops calumma-controller
//! ln -s target/debug/examples/hops calumma-edge
//! ln -s target/debug/examples/hops calumma-switchd
//! ```

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    match Path::new(&name).file_name().and_then(|name| name.to_str()) {
        Some("calumma-edge") => calumma_edge::command::main_with(&[
            &calumma_chamelemon::ChameleMon,
            &calumma_hops::Hops,
        ]),
        Some("calumma-controller") => calumma_controller::program::main(&[
            &calumma_chamelemon_analysis::ChameleMon,
            &calumma_hops_analysis::Hops,
        ]),
        Some("calumma-switchd") => calumma_switchd::command::main_with(&[
            &calumma_switchd::chamelemon::ChameleMon,
            &calumma_hops_tofino::Hops::ON_TRANSITS,
        ]),
        _ => {
            eprintln!(
                "start it by a link named calumma-edge, calumma-controller or calumma-switchd"
            );
            ExitCode::FAILURE
        }
    }
}
