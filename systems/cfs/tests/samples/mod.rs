//! Windows of a switch, one of each kind.

use calumma_cfs::frames::{Entry, Setup, Totals, Window};
use calumma_sketch::table::Rank;
use calumma_sketch::{HyperLogLog, KeyKind, WideKey};

/// What the switches measure by.
pub(crate) fn setup() -> Setup {
    Setup { entries: 256, hll_bits: 4, ..Setup::default() }
}

/// A window with three flows of IPv4 out of a thousand packets.
pub(crate) fn ipv4() -> Window {
    let key = |port| WideKey::v4([10, 0, 0, 2].into(), [10, 0, 1, 2].into(), port, 53, 17);
    let entry = |port, packets: u64| Entry {
        key: key(port),
        packets,
        bytes: 100 * packets,
        rank: Rank::new(2, 7 * u32::from(port)),
        ttl: 64,
        differences: 0,
        looped: 0,
        first_us: 1000,
        last_us: 50_000 + u32::from(port),
        sides: Entry::ENTERED,
        exact: true,
    };
    let looped = Entry {
        differences: 0b101_0000,
        looped: 6,
        sides: Entry::PASSED,
        exact: false,
        ..entry(3, 8)
    };
    let mut registers = vec![0; 16];
    registers[..5].copy_from_slice(&[1, 3, 1, 2, 7]);
    Window {
        keys: KeyKind::Ipv4,
        hash_key: 0x0123_4567_89AB_CDEF,
        routes_changed: false,
        limit: Some(Rank::new(3, 99)),
        theta: Some(1 << 30),
        totals: Totals {
            packets: 1000,
            refused_packets: 480,
            evicted_packets: 10,
            admitted: 7,
            evicted: 4,
            refused: 40,
            filtered: 3,
            crowded: 0,
            unmarked: 2,
            claimed_in: 800,
            claimed_out: 900,
            memory: 1 << 20,
        },
        flows: HyperLogLog::from_registers(registers).unwrap(),
        entries: vec![entry(1, 500), entry(2, 2), looped],
    }
}

/// A window with a flow of each family, of a switch that took all flows.
pub(crate) fn dual() -> Window {
    let of_ipv4 = ipv4();
    let host = |last| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into();
    let key = WideKey::v6(host(1), host(2), 1, 443, 6);
    let of_ipv6 = Entry { key, bytes: u64::MAX, ..of_ipv4.entries[0] };
    let entries = vec![of_ipv4.entries[0], of_ipv6];
    let totals = Totals { packets: 1000, admitted: 2, ..Totals::default() };
    let keys = KeyKind::Dual;
    Window { keys, routes_changed: true, limit: None, theta: None, totals, entries, ..of_ipv4 }
}
