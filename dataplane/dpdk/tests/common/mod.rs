//! What every story starts with: an EAL that needs no hugepages, no devices and no files, so that
//! any number of them run side by side on any machine.

use dpdk::Eal;

/// An EAL with `lcores` lcores on one CPU, and these further arguments.
pub(crate) fn eal(lcores: usize, further: &[&str]) -> Eal {
    let cpu = first_allowed_cpu();
    let places: Vec<String> = (0..lcores).map(|lcore| format!("{lcore}@{cpu}")).collect();
    let places = places.join(",");
    let common = [
        "--no-huge",
        "-m",
        "128",
        "--no-pci",
        "--no-shconf",
        "--no-telemetry",
        "--lcores",
        &places,
    ];
    Eal::init(&[&common, further].concat()).unwrap()
}

/// The first CPU that this process may run on, in a container or out of it.
pub(crate) fn first_allowed_cpu() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().split([',', '-']).next().unwrap().parse().unwrap()
}
