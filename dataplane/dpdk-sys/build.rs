//! Finds the system's libdpdk, generates bindings to its headers, and compiles the shim.

use std::env;
use std::path::PathBuf;

/// The oldest LTS release that the shim is written for and tested with; newer ones build alike.
const OLDEST: &str = "22.11";

/// Known by address only: their layouts change between releases, and Rust sees none of them.
const OPAQUE: [&str; 8] = [
    "rte_mbuf",
    "rte_mempool",
    "rte_eth_rxconf",
    "rte_eth_txconf",
    "rte_member_setsum",
    "rte_fib",
    "rte_fib6",
    "rte_hash",
];

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
    cc::Build::new()
        .file("shim.c")
        .flags(&flags)
        .includes(&library.include_paths)
        // Without optimisation an inline burst call is a dozen calls.
        .opt_level(3)
        .compile("calumma_dpdk_shim");

    match_clang_to_libclang();
    let mut bindings = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_args(&flags)
        .clang_args(library.include_paths.iter().map(|path| format!("-I{}", path.display())))
        .allowlist_function("calumma_.*")
        .allowlist_function("rte_eal_(init|cleanup|remote_launch|wait_lcore|get_lcore_state|hotplug_add)")
        .allowlist_function("rte_(strerror|version|get_tsc_hz|get_next_lcore|get_main_lcore)")
        .allowlist_function("rte_eth_dev_(start|stop|close|get_port_by_name|get_name_by_port|socket_id|(get|set)_mtu)")
        .allowlist_function("rte_eth_(find_next|rx_queue_setup|tx_queue_setup)")
        .allowlist_function("rte_eth_(promiscuous_enable|stats_reset)")
        .allowlist_function("rte_pktmbuf_pool_create")
        .allowlist_function("rte_mempool_(free|avail_count|in_use_count)")
        .allowlist_function("rte_member_(add|query_count|report_heavyhitter|reset|free)")
        .allowlist_function("rte_fib_(add|lookup_bulk|free)|rte_fib6_free")
        .allowlist_function("rte_hash_(add_key_data|lookup_bulk_data|lookup_data|count|reset|free)")
        .allowlist_function("rte_zmalloc|rte_free")
        .allowlist_function("rte_telemetry_register_cmd|rte_tel_data_(start_dict|add_dict_string)")
        .allowlist_type("calumma_.*|rte_lcore_state_t")
        .allowlist_var("RTE_(MAX_LCORE|MAX_ETHPORTS|PKTMBUF_HEADROOM|ETH_NAME_MAX_LEN)")
        .allowlist_var("CALUMMA_.*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .derive_default(true)
        .prepend_enum_name(false)
        .layout_tests(false)
        .generate_comments(false);
    for name in OPAQUE {
        bindings = bindings.blocklist_type(name).raw_line(format!(
            "#[repr(C)] #[derive(Debug)] pub struct {name} {{ _opaque: [u8; 0] }}"
        ));
    }
    let bindings = bindings.generate().expect("DPDK's headers can be read by libclang");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(out.join("bindings.rs")).expect("OUT_DIR can be written to");
}

/// Where several releases of clang are installed, libclang may be found of one and the compiler,
/// which is asked where its own headers are, of another; those headers then make no sense to
/// libclang. Names the compiler that belongs to it.
#[allow(unsafe_code)]
fn match_clang_to_libclang() {
    let Some((major, _)) = bindgen::clang_version().parsed else { return };
    let clang = format!("clang-{major}");
    let there = std::process::Command::new(&clang).arg("--version").output();
    if env::var_os("CLANG_PATH").is_some() || !there.is_ok_and(|output| output.status.success()) {
        return;
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&paths).map(|path| path.join(&clang)).find(|path| path.exists());
    if let Some(found) = found {
        // SAFETY: this program has one thread.
        unsafe { env::set_var("CLANG_PATH", found) };
    }
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
