//! Configurations as operators write them, and what is said of their mistakes.

use super::*;
use crate::carrier::{Shim, Tos};
use crate::parse::tunnel::Tunnels;

const PAIR: &str = r#"
    name = "e1"
    controller = "127.0.0.1:7600"

    [[port]]
    name = "net_af_packet0"
    role = "host"
    peer = "net_af_packet1"

    [[port]]
    name = "net_af_packet1"
    role = "fabric"
    peer = "net_af_packet0"
"#;

fn problem(text: &str) -> String {
    Config::parse(text, "edge.toml").unwrap_err().to_string()
}

#[test]
fn a_pair_of_ports_is_enough() {
    let config = Config::parse(PAIR, "edge.toml").unwrap();
    let both = vec![Polled { port: 0, peer: 1 }, Polled { port: 1, peer: 0 }];
    assert_eq!(config.polled(&[4, 7]).unwrap(), [both.clone(), both]);
    assert_eq!(config.ports[0].role, Role::Host);
    // No host gets a byte of an INT stack, unless the file says so; where marks are, the controller
    // says.
    let (strip, carrier) = (true, Carrier::Unchosen);
    assert_eq!(config.policy(), Policy { strip, carrier, ..Policy::default() });
}

#[test]
fn stacks_are_left_where_the_file_says_so_and_something_could_take_them_out() {
    let left = format!("{PAIR}\n[sketchint]\nstrip = false\nmtu = 1600\n");
    let config = Config::parse(&left, "edge.toml").unwrap();
    assert_eq!((config.policy().strip, config.sketchint.mtu), (false, Some(1600)));
    let plain = Config::parse(PAIR, "edge.toml").unwrap();
    // Other edges' sources go by what a session says: a running switch changes neither.
    for (running, new) in [(&plain, &config), (&config, &plain)] {
        let (followed, fixed) = running.following(new);
        assert_eq!(&followed, running);
        assert_eq!(fixed, ["sketchint.strip", "sketchint.mtu"]);
    }
    let short = problem(&left.replace("1600", "1279"));
    assert!(short.contains("sketchint.mtu") && short.contains("1280"), "{short}");
    let routed = problem(&format!("{left}\n[forwarding]\nmode = \"routed\"\n"));
    assert!(routed.contains("sketchint.mtu"), "{routed}");
    let transit = problem(&left.replace("name = \"e1\"", "name = \"e1\"\nrole = \"transit\""));
    assert!(transit.contains("sketchint.strip"), "{transit}");
}

#[test]
fn sinks_report_to_a_collector_where_the_file_names_one() {
    let reports = |keys: &str| format!("{PAIR}\n[sketchint.reports]\n{keys}\n");
    let with = |keys: &str| reports(&format!("collector = \"192.0.2.1:32766\"\n{keys}"));
    let read = |text: &str| Config::parse(text, "edge.toml").unwrap();
    assert_eq!(read(PAIR).sketchint.reports, None);
    let plain = read(&with("")).sketchint.reports.unwrap();
    let [tracked, per_second, bytes] =
        [plain.tracked.word, Some(plain.per_second), Some(plain.packet_bytes.into())];
    assert_eq!((tracked, per_second, bytes), (Some(0), Some(1000), Some(128)));
    assert_eq!(plain.datagram_bytes(), 1472);
    let long = read(&reports("collector = \"[2001:db8::1]:32766\"\nmtu = 9000\ntracked = 0.25"));
    let long = long.sketchint.reports.unwrap();
    assert_eq!((long.datagram_bytes(), long.tracked.word), (8952, Some(0x4000_0000)));
    assert_eq!(read(&with("tracked = 1")).sketchint.reports.unwrap().tracked.word, Some(u32::MAX));
    let fixed = read(PAIR).following(&read(&with(""))).1;
    assert_eq!(fixed, ["sketchint.reports"]);
    for (wrong, says) in [
        (with("per_second = 0"), "sketchint.reports.per_second: 0; give 1 to"),
        (with("packet_bytes = 63"), "sketchint.reports.packet_bytes: 63; give 64 to 256"),
        (with("tracked = 1.5"), "sketchint.reports.tracked: a share is 0 to 1"),
        (with("mtu = 575"), "sketchint.reports.mtu: 575 is below 576"),
        (reports("collector = \"192.0.2.1:0\""), "sketchint.reports.collector: 192.0.2.1:0"),
        (reports("collector = \"somewhere\""), "sketchint.reports.collector"),
        (reports(""), "collector"),
        (with("").replace("name = \"e1\"", "name = \"e1\"\nrole = \"transit\""), "is no sink"),
    ] {
        let problem = problem(&wrong);
        assert!(problem.contains(says), "{problem}");
    }
}

#[test]
fn a_transit_switch_routes_between_ports_of_the_fabric() {
    let transit = r#"
        name = "s1"
        role = "transit"
        controller = "127.0.0.1:7600"
        [[port]]
        name = "net_af_packet0"
        role = "fabric"
        [[port]]
        name = "net_af_packet1"
        role = "fabric"
        [forwarding]
        mode = "routed"
        [[forwarding.interface]]
        port = "net_af_packet0"
        addresses = ["10.0.0.1/24"]
        [[forwarding.interface]]
        port = "net_af_packet1"
        addresses = ["10.0.1.1/24"]
    "#;
    let config = Config::parse(transit, "transit.toml").unwrap();
    assert_eq!(calumma_wire::Role::from(config.role), calumma_wire::Role::Transit);
    assert_eq!(Config::parse(PAIR, "edge.toml").unwrap().role, NodeRole::Edge);
    let with_host = problem(&transit.replacen("\"fabric\"", "\"host\"", 1));
    assert!(with_host.contains("transit switch") && with_host.contains("line 7"), "{with_host}");
    let pairs = problem(&transit.replace("mode = \"routed\"", ""));
    assert!(pairs.contains("forwarding.mode"), "{pairs}");
    let other = problem(&transit.replace("\"transit\"", "\"core\""));
    assert!(other.contains("transit") && other.contains("edge"), "{other}");
}

#[test]
fn a_carrier_is_what_the_configuration_says() {
    for (section, wanted) in [
        ("kind = 'tos'\ndscp = 46", Carrier::Tos(Tos { dscp: 46 })),
        ("dscp = 46", Carrier::Unchosen),
        ("kind = 'tos'\nsignature = true\ndscp = 8", Carrier::SignedTos(Tos { dscp: 8 })),
        // As files of releases have it whose default was the ToS byte.
        ("signature = false\ndscp = 8", Carrier::Tos(Tos { dscp: 8 })),
        ("signature = true\ndscp = 8", Carrier::SignedTos(Tos { dscp: 8 })),
        ("kind = 'flow-label'", Carrier::FlowLabel),
        ("kind = 'ip-id'", Carrier::IpId),
        ("kind = 'auto'\ndscp = 8", Carrier::Unchosen),
        ("kind = 'shim'", Carrier::Shim(Shim { ether_type: 0x88B5, hops: false })),
        (
            "kind = 'shim'\nether_type = 0x9ABC\nhops = true",
            Carrier::Shim(Shim { ether_type: 0x9ABC, hops: true }),
        ),
    ] {
        let text = format!("{PAIR}\n[carrier]\n{section}\n[measure]\ntunnels = 'inner'");
        let policy = Config::parse(&text, "edge.toml").unwrap().policy();
        assert_eq!((policy.carrier, policy.tunnels), (wanted, Tunnels::Inner));
    }
}

#[test]
fn switches_are_marked_alike_by_the_same_words_and_releases_differ_in_them() {
    let words = |section: &str| {
        let text = format!("{PAIR}\n[carrier]\n{section}");
        Config::parse(&text, "edge.toml").unwrap().marking().carrier
    };
    assert_eq!(words(""), "tos");
    assert_eq!(words("dscp = 46"), "tos");
    assert_eq!(words("kind = 'tos'\ndscp = 46"), "tos");
    assert_eq!(words("signature = true"), "signed tos");
    assert_eq!(words("kind = 'ip-id'"), "ip-id");
    // Those before had other bits there, and said "flow-label" and "shim 0x88b5".
    assert_eq!(words("kind = 'flow-label'"), "flow-label v2");
    assert_eq!(words("kind = 'shim'"), "shim 0x88b5 v2");
    assert_eq!(words("kind = 'shim'\nhops = true"), "shim 0x88b5 v3");
}

/// One that the file does not go with is not offered.
#[test]
fn a_switch_that_leaves_the_carrier_to_the_controller_offers_what_its_file_goes_with() {
    let with = |text: &str| {
        Config::parse(&format!("{text}\n[carrier]\nkind = 'auto'\ndscp = 8"), "edge.toml").unwrap()
    };
    let config = with(PAIR);
    let marking = config.marking();
    assert_eq!(
        (&*marking.carrier, &marking.offers[..]),
        ("tos", &["tos".into(), "ip-id".into()][..])
    );
    let carriers: Vec<_> = config.carriers().into_iter().map(|(_, carrier)| carrier).collect();
    assert_eq!(carriers, [Carrier::Tos(Tos { dscp: 8 }), Carrier::IpId]);
    let lines = config.on_carrier();
    assert!(lines[0].starts_with("carrier: auto: the controller says"), "{lines:?}");
    assert_eq!(lines[1], "carrier: it offers \"tos\" and \"ip-id\"");
    assert!(lines[2].starts_with("carrier: \"tos\" all the same where"), "{lines:?}");
    assert_eq!(lines.len(), 3);

    let sink = with(&PAIR.replacen("role = \"host\"", "role = \"host\"\nhost_sink = true", 1));
    assert_eq!(sink.marking().offers, ["tos"]);
    let lines = sink.on_carrier();
    assert!(lines[2].starts_with("carrier: not \"ip-id\": host_sink of port"), "{lines:?}");
    let named = Config::parse(&format!("{PAIR}\n[carrier]\nkind = 'tos'"), "edge.toml").unwrap();
    assert!(named.carriers().is_empty() && named.marking().offers.is_empty());
    // A file that says nothing does so as well.
    let plain = Config::parse(PAIR, "edge.toml").unwrap();
    assert_eq!(plain.marking(), marking);
    // What comes with the session can't change without another one.
    assert_eq!(config.following(&with(PAIR)).1, [""; 0]);
    let other = Config::parse(&format!("{PAIR}\n[carrier]\nkind = 'auto'"), "edge.toml").unwrap();
    assert_eq!(config.following(&other).1, ["carrier.dscp, where kind is not \"tos\""]);
    assert_eq!(plain.following(&other).1, [""; 0]);
    assert_eq!(plain.following(&named).1, ["carrier.kind, signature and ether_type"]);
}

#[test]
fn a_carrier_says_what_it_costs() {
    for (section, wanted) in [
        ("", "the controller says where the mark is"),
        ("kind = 'tos'", "upper three bits of the DSCP"),
        ("signature = true", "the whole DSCP"),
        ("kind = 'flow-label'", "IPv4 is not measured"),
        ("kind = 'ip-id'", "Fragments"),
        ("kind = 'shim'", "MTU"),
    ] {
        let config = Config::parse(&format!("{PAIR}\n[carrier]\n{section}"), "edge.toml").unwrap();
        let costs = config.carrier.costs();
        assert!(costs.contains(wanted), "{costs}");
    }
}

/// The lines that `--check` says of the carrier.
fn on_carrier(text: &str) -> Vec<String> {
    Config::parse(text, "edge.toml").unwrap().on_carrier()
}

#[test]
fn check_says_which_carrier_is_in_use_and_why_it_is_not_ip_id() {
    let tos = on_carrier(&format!("{PAIR}\n[carrier]\nkind = 'tos'"));
    assert!(tos[0].starts_with("carrier: tos: the mark is in the upper"), "{tos:?}");
    assert!(tos[1].contains("Nothing else in it stands against that"), "{tos:?}");
    assert_eq!(tos.len(), 2);
    let ip_id = on_carrier(&format!("{PAIR}\n[carrier]\nkind = 'ip-id'"));
    assert!(ip_id[0].starts_with("carrier: ip-id: ") && ip_id.len() == 1, "{ip_id:?}");

    let sink = PAIR.replacen("role = \"host\"", "role = \"host\"\nhost_sink = true", 1);
    let lines = on_carrier(&format!("{sink}\n[carrier]\nkind = 'tos'"));
    assert!(lines.len() == 2 && lines[1].contains("not \"ip-id\": host_sink of port"), "{lines:?}");
    let lines = on_carrier(&format!("{sink}\n[carrier]\nkind = 'ip-id'"));
    assert!(
        lines.len() == 2 && lines[1].contains("but against \"ip-id\" is host_sink"),
        "{lines:?}"
    );
}

/// What is marked is cut by no interface: packets of 1280 bytes pass all of them.
#[test]
fn no_interface_cuts_what_ip_id_marks() {
    let interface = |port: &str, net: u8, mtu: u16| {
        format!(
            "[[forwarding.interface]]\nport = '{port}'\naddresses = ['10.0.{net}.1/24']\n\
             mtu = {mtu}\n"
        )
    };
    let port = |name: &str, role: &str| format!("[[port]]\nname = '{name}'\nrole = '{role}'\n");
    let routed = |host: u16, fabric: u16| {
        format!(
            "name = 'e1'\ncontroller = '127.0.0.1:7600'\n{}{}[forwarding]\nmode = 'routed'\n{}{}",
            port("h", "host"),
            port("f", "fabric"),
            interface("h", 1, host),
            interface("f", 2, fabric)
        )
    };
    for (host, fabric) in [(1500, 1280), (1280, 1500)] {
        let lines = on_carrier(&routed(host, fabric));
        assert_eq!(lines[1], "carrier: it offers \"tos\" and \"ip-id\"");
    }
    let refused = Config::parse(&routed(1500, 1279), "edge.toml").unwrap_err().to_string();
    assert!(refused.contains("1279 is below 1280"), "{refused}");
}

#[test]
fn a_running_switch_follows_the_dscp_and_not_the_carrier() {
    let with = |section: &str| {
        Config::parse(&format!("{PAIR}\n[carrier]\n{section}"), "edge.toml").unwrap()
    };
    let running = with("kind = 'tos'\ndscp = 8");
    assert!(running.following(&with("dscp = 46\nsignature = false")).1.is_empty());
    for other in ["dscp = 8\nsignature = true", "kind = 'shim'", "dscp = 8"] {
        let fixed = running.following(&with(other)).1;
        assert_eq!(fixed, ["carrier.kind, signature and ether_type"], "{other}");
    }
}

#[test]
fn what_a_carrier_can_not_be_is_said_with_the_remedy() {
    for (section, wanted) in [
        ("kind = 'shim'\nether_type = 0x0800", "carrier.ether_type: 0x0800"),
        ("kind = 'shim'\nether_type = 1500", "nothing in the network uses"),
        ("ether_type = 0x88b5", "only kind = \"shim\""),
        ("hops = true", "only kind = \"shim\""),
        ("kind = 'shim'\ndscp = 0", "only kind = \"tos\""),
        ("kind = 'flow-label'\nsignature = true", "carrier.signature"),
        ("kind = 'ip-id'\ndscp = 0", "only kind = \"tos\""),
        ("kind = 'auto'\nsignature = true", "among carriers without"),
        ("kind = 'vlan'", "flow-label"),
    ] {
        let problem = problem(&format!("{PAIR}\n[carrier]\n{section}"));
        assert!(problem.contains(wanted), "{problem}");
    }
}

#[test]
fn the_ready_configurations_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dpdk-config");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            Config::load(&path).unwrap();
            files += 1;
        }
    }
    assert!(files >= 4);
}

#[test]
fn one_error_lists_every_mistake_with_its_line_and_its_remedy() {
    let text = r#"
name = "e1"
controller = "nowhere"
colour = "green"

[carrier]
dscp = 64

[polling]
idle_sleep_us = "long"
transmit_retry = 3

[metrics]
listen = "0.0.0.0:9601"

[[port]]
name = "net_null0"
role = "hots"
peer = "net_null7"

[[port]]
role = "fabric"
rx_descriptors = 0
"#;
    let problem = problem(text);
    let lines: Vec<&str> = problem.lines().collect();
    assert_eq!(lines[0], "edge.toml: 10 mistakes");
    for (line, place, remedy) in [
        (3, "controller", "HOST:PORT"),
        (4, "colour", "there is no key colour here, but: name, role, controller, tls"),
        (7, "carrier.dscp", "0 to 63"),
        (10, "polling.idle_sleep_us", "expected u32"),
        (11, "polling.transmit_retry", "transmit_retries"),
        (14, "metrics.listen", "`tokens` (`calumma-controller token add NAME`) and `tls`"),
        (18, "port[0].role", "host, fabric"),
        (21, "port[1].name", "add it"),
        (21, "port[1].peer", "add it"),
        (23, "port[1].rx_descriptors", "at least one"),
    ] {
        let found = lines.iter().find(|found| found.contains(&format!(": {place}: ")));
        let found = found.unwrap_or_else(|| panic!("{place} in {problem}"));
        assert!(found.starts_with(&format!("  line {line}: ")), "{line}: {found}");
        assert!(found.contains(remedy), "{remedy}: {found}");
    }
}

#[test]
fn a_running_switch_follows_a_new_configuration_as_far_as_it_can() {
    let marked = format!("{PAIR}\n[carrier]\nkind = 'tos'");
    let old = Config::parse(&marked, "edge.toml").unwrap();
    let sections = "\ndscp = 46\n[policy]\nmalformed = 'drop'\n\
                    [polling]\nidle_sleep_us = 9\ncontrol_cpu = 1\n\
                    [tls]\nca = 'a'\ncertificate = 'c'\nkey = 'k'";
    let new = Config::parse(&format!("{marked}{sections}"), "edge.toml").unwrap();
    let (followed, fixed) = old.following(&new);
    assert_eq!((followed.policy, followed.carrier), (new.policy, new.carrier));
    assert_eq!((followed.polling.idle_sleep_us, followed.polling.control_cpu), (9, None));
    assert!(followed.tls.is_some() && followed.tls == new.tls, "from the next connection on");
    assert_eq!(fixed, ["polling.control_cpu"]);

    let other = PAIR.replace("e1", "e2") + "\n[carrier]\nkind = 'shim'";
    let other = Config::parse(&other, "edge.toml").unwrap();
    let (followed, fixed) = old.following(&other);
    assert_eq!((followed, fixed), (old, vec!["name", "carrier.kind, signature and ether_type"]));
}

#[test]
fn ports_may_have_lcores_of_their_own() {
    let pair = |at: usize, lcores: &str| {
        let port = |name: &str, role: &str, peer: &str| {
            format!(
                "[[port]]\nname = 'eth{name}'\nrole = '{role}'\npeer = 'eth{peer}'\nlcores = {lcores}\n"
            )
        };
        let (a, b) = ((2 * at).to_string(), (2 * at + 1).to_string());
        port(&a, "host", &b) + &port(&b, "fabric", &a)
    };
    let text =
        format!("name = 'e1'\ncontroller = '::1:7600'\n{}{}", pair(0, "[3]"), pair(1, "[3, 5]"));
    let config = Config::parse(&text, "edge.toml").unwrap();
    let polled = |port, peer| Polled { port, peer };
    let all = vec![polled(0, 1), polled(1, 0), polled(2, 3), polled(3, 2)];
    let second = vec![polled(2, 1), polled(3, 0)];
    assert_eq!(config.polled(&[3, 5]).unwrap(), [all, second]);

    let stranger = config.polled(&[3]).unwrap_err().to_string();
    assert!(stranger.contains("port eth2 names lcore 5, but the EAL has [3]"), "{stranger}");
    let idle = config.polled(&[3, 5, 6]).unwrap_err().to_string();
    assert!(idle.contains("lcore 6 polls no port"), "{idle}");
}

#[test]
fn every_breach_of_toml_is_found() {
    let problem = problem("name = \ncontroller = 'a\n[carrier\n");
    for line in ["line 1:", "line 2:", "line 3:"] {
        assert!(problem.contains(line), "{problem}");
    }
}

#[test]
fn sections_that_contradict_each_other_are_named() {
    let stranger = problem(&PAIR.replace("peer = \"net_af_packet1\"", "peer = \"eth7\""));
    assert!(stranger.contains("port[0].peer: there is no port eth7, but: net_af_packet0"));

    let same_role = problem(&PAIR.replace("\"fabric\"", "\"host\""));
    assert!(same_role.contains("one of them must face hosts"));

    let apart = problem(&PAIR.replace("role = \"host\"", "role = \"host\"\nlcores = [1, 2]"));
    assert!(apart.contains("port[0].lcores: net_af_packet0 and its peer"), "{apart}");
    let nobody = problem(&PAIR.replace("role = \"host\"", "role = \"host\"\nlcores = []"));
    assert!(nobody.contains("port[0].lcores: somebody must poll it"), "{nobody}");
    assert!(!nobody.contains("different"), "{nobody}");

    let twice = problem(&format!(
        "{PAIR}\n[[port]]\nname = \"net_af_packet0\"\nrole = \"host\"\npeer = \"net_af_packet1\""
    ));
    assert!(twice.contains("port[2].name: there is a port net_af_packet0 above"), "{twice}");

    let host = PAIR.replacen("name", "role = \"host\"\nname", 1);
    assert!(Config::parse(&host, "edge.toml").is_ok());
    let behind = "role = \"host\"\nhost_sink = true";
    let edge = PAIR.replace("role = \"host\"", behind);
    assert!(Config::parse(&edge, "edge.toml").unwrap().ports[0].host_sink);
    let both = problem(&edge.replacen("name", "role = \"host\"\nname", 1));
    assert!(both.contains("port[0].host_sink: only edges leave marks and stacks"), "{both}");
    let fabric = problem(&PAIR.replace("\"fabric\"", "\"fabric\"\nhost_sink = true"));
    assert!(fabric.contains("port[1].host_sink: the port does not face hosts"), "{fabric}");
    let flooded = problem(&format!("{edge}\n[forwarding]\nskip_flooded = true"));
    assert!(flooded.contains("leave forwarding.skip_flooded out"), "{flooded}");
    let leaves = problem(&format!("{host}\n[sketchint]\nstrip = false"));
    assert!(leaves.contains("sketchint.strip: an end host's sink takes stacks out"), "{leaves}");
    let pairs = problem(&format!("{PAIR}\n[sketchint]\npmtu = \"advertise\""));
    assert!(pairs.contains("sketchint.pmtu: only an edge that routes"), "{pairs}");
    let other = problem(&format!("{PAIR}\n[sketchint]\npmtu = \"always\""));
    assert!(other.contains("advertise"), "{other}");
    let routed = problem(&format!("{host}\n[forwarding]\nmode = \"routed\""));
    assert!(routed.contains("forwarding.mode: an end host's sink joins"), "{routed}");

    let missing = Config::load(Path::new("/nonexistent/edge.toml")).unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/edge.toml") && missing.contains("--config"));
}
