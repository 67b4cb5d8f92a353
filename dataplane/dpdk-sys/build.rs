//! Finds the system's libdpdk, generates bindings to its headers, and compiles the shim.

use std::env;
use std::path::PathBuf;

/// The oldest LTS release whose names we use.
const OLDEST: &str = "21.11";

fn main() {
    for input in ["wrapper.h", "shim.h", "shim.c"] {
        println!("cargo:rerun-if-changed={input}");
    }
    let library = match pkg_config::Config::new().atleast_version(OLDEST).probe("libdpdk") {
        Ok(library) => library,
        Err(problem) => {
            eprintln!("{problem}");
            eprintln!(
                "dpdk-sys needs DPDK {OLDEST} or newer, found by pkg-config as libdpdk.\n\
                 On Debian and Ubuntu: apt-get install libdpdk-dev clang libclang-dev\n\
                 (`cargo xtask test` installs them by itself)"
            );
            std::process::exit(1);
        }
    };

    // pkg-config's Rust wrapper drops flags such as -march and -include, which the headers need.
    let flags = flags();
    cc::Build::new().file("shim.c").flags(&flags).includes(&library.include_paths).compile("shim");

    let bindings = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_args(&flags)
        .clang_args(library.include_paths.iter().map(|path| format!("-I{}", path.display())))
        .allowlist_function("calumma_.*")
        .allowlist_function("rte_eal_(init|cleanup|remote_launch|wait_lcore)")
        .allowlist_function("rte_(strerror|version|get_tsc_hz|get_next_lcore|get_main_lcore)")
        .allowlist_function("rte_eth_dev_(start|stop|close|get_port_by_name|get_name_by_port)")
        .allowlist_function("rte_eth_(find_next|rx_queue_setup|tx_queue_setup)")
        .allowlist_function("rte_eth_promiscuous_enable")
        .allowlist_function("rte_pktmbuf_pool_create")
        .allowlist_function("rte_mempool_(free|avail_count|in_use_count)")
        .allowlist_type("calumma_mbuf_offset")
        .allowlist_var("RTE_(MAX_LCORE|MAX_ETHPORTS|PKTMBUF_HEADROOM|ETH_NAME_MAX_LEN)")
        .allowlist_var("CALUMMA_.*")
        // Known by address only.
        .opaque_type("rte_(mbuf|mempool|eth_rxconf|eth_txconf)")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .derive_default(true)
        .prepend_enum_name(false)
        .layout_tests(false)
        .generate_comments(false)
        .generate()
        .expect("DPDK's headers can be read by libclang");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(out.join("bindings.rs")).expect("OUT_DIR can be written to");
}

/// Compiler flags that pkg-config gives beside include paths.
fn flags() -> Vec<String> {
    let output = std::process::Command::new(
        env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into()),
    )
    .args(["--cflags-only-other", "libdpdk"])
    .output()
    .expect("pkg-config has just been run");
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}
