//! Windows of a switch, one of each kind.

use calumma_cfs::frames::{
    Ends, Entry, Graded, Notice, Overrides, Residual, Setup, Suspect, Suspects, Totals, Uncounted,
    Unentered, Window,
};
use calumma_sketch::residual::{Counts, Kind, Residual as _};
use calumma_sketch::table::{Rank, Refused};
use calumma_sketch::{AnyKey, FlowKey, HashFamily, HashKey, HyperLogLog, KeyKind, WideKey};

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
        local: false,
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
        alpha: None,
        overrides: None,
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
        uncounted: None,
        suspects: None,
        ends: None,
    }
}

/// What switches measure by that keep a residual.
pub(crate) fn with_residual() -> Setup {
    Setup { residual: Some(16), ..setup() }
}

/// What switches measure by whose residual is a FlowRadar.
#[allow(dead_code, reason = "not every test crate has both residuals")]
pub(crate) fn with_flow_radar() -> Setup {
    Setup { kind: Kind::FlowRadar, filter_bits: 1 << 10, ..with_residual() }
}

/// The same windows, one of an edge and one of a switch that is none: what they refused and evicted
/// is in a residual.
pub(crate) fn uncounted() -> [Window; 2] {
    uncounted_by(&with_residual())
}

/// What is in the residual of the edge's window: flows, on which sides they came, packets and
/// bytes.
pub(crate) fn flows_of_the_edge() -> [(FlowKey, u8, Counts); 3] {
    [(0, 1, 300), (1, 4, 180), (2, 5, 10)].map(|(at, sides, packets)| {
        (FlowKey::from_words(at, 9, 7 << 16, 6), sides, Counts { packets, bytes: 60 * packets })
    })
}

/// The functions by which flows are hashed.
pub(crate) fn family() -> HashFamily {
    HashFamily::new(&HashKey::from_bytes([3; 32]))
}

/// The same by another setup.
pub(crate) fn uncounted_by(setup: &Setup) -> [Window; 2] {
    let family = family();
    let filter = |flows: &[WideKey]| {
        let mut filter = Refused::from_words(&[0; 2 * Refused::LEAST_WORDS]).unwrap();
        flows.iter().for_each(|flow| filter.insert(&family.hash(flow)));
        filter
    };
    let flows = flows_of_the_edge();
    let refused = vec![filter(&flows.map(|(flow, ..)| flow.into()))];
    let mut of_edge = Residual::new(setup, 16, true);
    for (flow, sides, counts) in flows {
        of_edge.part(sides, counts.packets).insert(&flow, &family.hash(&flow), counts);
    }
    let (mut of_transit, wide) = (Residual::new(setup, 16, false), dual().entries[1].key);
    let counts = Counts { packets: 1 << 20, bytes: 1 << 40 };
    of_transit.part(Entry::PASSED, counts.packets).insert(&wide, &family.hash(&wide), counts);
    let (edge, mut transit) = (ipv4(), dual());
    transit.totals.refused_packets = 1 << 20;
    transit.totals.packets += 1 << 20;
    let refused_by_two = vec![filter(&[wide]), filter(&[])];
    let by_tables = |refused| if setup.kind == Kind::Fermat { refused } else { Vec::new() };
    let [refused, refused_by_two] = [refused, refused_by_two].map(by_tables);
    let of_edge = Uncounted { flows: AnyKey::Ipv4(of_edge), refused };
    let of_transit = Uncounted { flows: AnyKey::Dual(of_transit), refused: refused_by_two };
    [Window { uncounted: Some(of_edge), ..edge }, Window { uncounted: Some(of_transit), ..transit }]
}

/// The window of an edge whose table had three quarters of the memory, and what it measures by.
#[allow(dead_code, reason = "not every test crate has shares")]
pub(crate) fn divided() -> (Setup, Window) {
    let setup = Setup { residual: Some(64), alpha_moves: true, ..setup() };
    let sizes = setup.sizes(75);
    let mut residual = Residual::new(&setup, sizes.residual.unwrap(), true);
    let [of_edge, _] = uncounted();
    for (flow, sides, counts) in flows_of_the_edge() {
        residual.part(sides, counts.packets).insert(&flow, &family().hash(&flow), counts);
    }
    let refused = of_edge.uncounted.as_ref().unwrap().refused.clone();
    let uncounted = Some(Uncounted { flows: AnyKey::Ipv4(residual), refused });
    (setup, Window { alpha: Some(75), uncounted, ..of_edge })
}

/// The window of an edge whose plan overrode the setup, and what it measures by.
#[allow(dead_code, reason = "not every test crate has overrides")]
pub(crate) fn overridden() -> (Setup, Window) {
    let (setup, window) = divided();
    let entries = Some(setup.entries);
    // The share is of the same memory.
    let setup = Setup { entries: 2 * setup.entries, overrides: true, ..setup };
    let overrides = Overrides { entries, grade: Some(Graded::Greedy), unclaimed: false };
    (setup, Window { overrides: Some(overrides), ..window })
}

/// The window of an edge of two lcores that says where flows entered and left, and what it measures
/// by.
#[allow(dead_code, reason = "not every test crate has ends")]
pub(crate) fn with_ends() -> (Setup, Window) {
    let family = family();
    let filter = |flows: &[u32]| {
        let mut filter = Refused::from_words(&[0; 2 * Refused::LEAST_WORDS]).unwrap();
        let hashes = flows.iter().map(|&at| family.hash(&FlowKey::from_words(at, 9, 7 << 16, 6)));
        hashes.for_each(|hashes| filter.insert(&hashes));
        filter
    };
    let entered = vec![filter(&[1, 2, 3]), filter(&[4])];
    let ends = Ends { entered, left: vec![filter(&[3, 5]), filter(&[])], sums: None };
    let (setup, mut window) = divided();
    window.entries[1].local = true;
    (Setup { ends: true, ..setup }, Window { ends: Some(ends), ..window })
}

/// The same with what their packets add up to.
#[allow(dead_code, reason = "not every test crate has ends")]
pub(crate) fn with_sums() -> (Setup, Window) {
    let (setup, mut window) = with_ends();
    let sums = Unentered { packets: 0x0102_0304, weighted: 0xFEDC_BA98_7654_3210 };
    window.ends.iter_mut().for_each(|ends| ends.sums = Some(sums));
    (Setup { sums: true, ..setup }, window)
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

/// Windows of switches that watch flows without an entry for loops, and what they measure by.
pub(crate) fn guarded() -> [(Setup, Window); 3] {
    let round = (1..=31).fold(0, |bits, turn| bits | 1 << (2 * turn));
    let suspect = |key, ttl| Suspect { key, ttl, differences: round };
    let two =
        [7, 9].map(|port| WideKey::v4([10, 0, 0, 2].into(), [10, 0, 1, 2].into(), port, 53, 17));
    let flows =
        vec![suspect(two[0], 63), Suspect { differences: 1 | 1 << 63, ..suspect(two[1], 255) }];
    let [ipv4, dual] = [ipv4(), dual()];
    let wide = suspect(dual.entries[1].key, 64);
    let with =
        |window, flows, missed| Window { suspects: Some(Suspects { flows, missed }), ..window };
    let [of_edge, _] = uncounted();
    let guard = |setup| Setup { guard: true, ..setup };
    [
        (guard(setup()), with(ipv4, flows, 3)),
        (guard(setup()), with(dual, vec![wide], 0)),
        (guard(with_residual()), with(of_edge, Vec::new(), 0)),
    ]
}

/// Two flows that go round: in a loop of two hops by IPv4, and in one of three by IPv6.
#[allow(dead_code, reason = "not every test crate has notices")]
pub(crate) fn notice() -> Notice {
    let multiples = |length: u32, most| (1..=most).fold(0, |bits, at| bits | 1 << (at * length));
    let [narrow, wide] = [ipv4().entries[0].key, dual().entries[1].key];
    let mut flows = vec![
        Suspect { key: narrow, ttl: 63, differences: multiples(2, 31) },
        Suspect { key: wide, ttl: 255, differences: 1 | multiples(3, 21) },
    ];
    flows.sort_by_key(|of| of.key);
    Notice { flows }
}
