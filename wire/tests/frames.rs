//! What a reader of frames may rely on, whatever comes over the wire.

use std::net::IpAddr;

use calumma_epoch::Guards;
use calumma_wire::parts::{cut, first_frame, in_parts, is_part};
use calumma_wire::{
    Domain, FrameReader, Generators, HEADER_BYTES, Hello, MAX_FRAME_BYTES, MAX_MESSAGE_BYTES,
    Marking, Message, NO_MARK, Offer, Outcome, PathsSeen, PathsWanted, Prefix, ProbeSeen, Problem,
    Role, Secret, Side, SideKind, SwitchKind, SystemId, SystemSetup, VERSION, Welcome, v5,
};
use proptest::prelude::*;

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn sealed() -> Message {
    Message::Sealed { system: SystemId::OMNIMON, epoch: 7, late_packets: 0, body: Vec::new() }
}

fn hello(node: &str) -> Hello {
    Hello {
        node: node.to_owned(),
        role: Role::Transit,
        kind: SwitchKind::Software,
        program: "calumma-edge 0.1.0".to_owned(),
        marking: Marking::default(),
        systems: vec![
            Offer { system: SystemId::CHAMELEMON, lowest: 1, highest: 1 },
            Offer { system: SystemId(200), lowest: 2, highest: 4 },
        ],
        holding: vec![(SystemId(200), vec![1, 2, 3])],
    }
}

#[test]
fn a_stranger_is_found_out_by_its_first_bytes() {
    let mut reader = FrameReader::new();
    reader.push(b"GET / HTTP/1.1\r\n");
    let error = reader.next_message().unwrap_err();
    assert!(matches!(error.problem, Problem::TooLong { .. }), "{error}");
    assert!(error.to_string().contains("is the peer a Calumma program?"), "{error}");

    let mut reader = FrameReader::new();
    reader.push(&[200, 0, 0, 0, 1, 2]);
    let error = reader.next_message().unwrap_err();
    assert_eq!((error.offset, error.problem), (4, Problem::Magic(0x0201)));
}

#[test]
fn a_length_bomb_is_refused_before_allocation() {
    let mut bomb = encoded(&sealed());
    bomb[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut reader = FrameReader::new();
    reader.push(&bomb);
    let error = reader.next_message().unwrap_err();
    let (length, limit) = (u32::MAX as usize + 4, MAX_FRAME_BYTES);
    assert_eq!(error.problem, Problem::TooLong { length, limit });

    let mut reader = FrameReader::new().with_limit(4096);
    reader.push(&5000_u32.to_le_bytes());
    let error = reader.next_message().unwrap_err();
    assert_eq!(error.problem, Problem::TooLong { length: 5004, limit: 4096 });
}

/// Made by hand: see the head of `parts`.
#[test]
fn parts_are_laid_out_as_documented() {
    let message = encoded(&Message::Reported { epoch: 5 });
    let of = |number: u8, bytes: &[u8]| {
        let header = [12 + bytes.len() as u8, 0, 0, 0, 0x1A, 0xCA, 6, 9];
        [&header[..], &[number, 0, 0, 0, 2, 0, 0, 0], bytes].concat()
    };
    let parts = [of(0, &message[..10]), of(1, &message[10..])].concat();
    assert_eq!(cut(&message, 10), parts);
    assert_eq!(in_parts(message.clone()), Some(message));
}

#[test]
fn a_long_message_comes_whole_or_not_at_all() {
    let side = Side {
        system: SystemId::SKETCHINT,
        epoch: 7,
        side: SideKind::Egress,
        stall_ns: 0,
        packets: 1,
        counters: Vec::new(),
        body: (0..MAX_FRAME_BYTES as u32 + 7).map(|at| at as u8).collect(),
    };
    let message = Message::Side(Box::new(side));
    let whole = encoded(&message);
    let mut reader = FrameReader::new();
    reader.push(&whole[..HEADER_BYTES]);
    assert!(matches!(reader.next_message().unwrap_err().problem, Problem::TooLong { .. }));

    let length = whole.len();
    let frames = in_parts(whole).unwrap();
    let mut reader = FrameReader::new();
    let (last, all_but_last) = (frames.len() - 1, &frames[..frames.len() - 1]);
    for bytes in all_but_last.chunks(1 << 20) {
        reader.push(bytes);
        assert_eq!(reader.next_message(), Ok(None));
    }
    assert!(reader.is_within_frame());
    reader.push(&frames[last..]);
    assert!(reader.next_message() == Ok(Some(message)));
    assert_eq!((reader.frame_bytes(), reader.is_within_frame()), (length, false));
    assert_eq!(in_parts(vec![0; MAX_MESSAGE_BYTES + 1]), None);
}

#[test]
fn parts_out_of_order_are_refused_and_so_is_who_is_not_known() {
    let frames = cut(&encoded(&sealed()), 5);
    let parts: Vec<&[u8]> = frames.chunks(first_frame(&frames)).collect();
    let says = |order: &[usize], reader: FrameReader| {
        let mut reader = reader;
        order.iter().for_each(|&at| reader.push(parts[at]));
        let refused = reader.next_message().unwrap_err();
        (refused.offset, refused.to_string())
    };
    let all = parts.len();
    let wrong = |number: usize, next: usize| {
        let why = format!("{number} of {all}, where {next} of {all} was to come");
        (8, format!("byte 8 of a part frame: number of a part: {why}"))
    };
    assert_eq!(says(&[1], FrameReader::new()), wrong(1, 0));
    assert_eq!(says(&[0, 0], FrameReader::new()), wrong(0, 1));
    assert_eq!(says(&[0, 2], FrameReader::new()), wrong(2, 1));
    let stranger = FrameReader::new().with_limit(4096);
    assert_eq!(
        says(&[0], stranger),
        (7, "byte 7 of a frame: there is no frame of kind 0x09".into())
    );
    // A part of a part is no message.
    let nested = cut(&frames[..first_frame(&frames)], 1 << 10);
    let mut reader = FrameReader::new();
    reader.push(&nested);
    assert_eq!(reader.next_message().unwrap_err().problem, Problem::Kind(9));
}

#[test]
fn unknown_versions_are_refused_and_refusals_understood() {
    let mut bytes = encoded(&sealed());
    bytes[6] = 9;
    let error = Message::decode(&bytes).unwrap_err();
    assert_eq!((error.offset, &error.problem), (6, &Problem::Version(9)));
    assert!(error.to_string().contains("run the same release on both"), "{error}");

    let refused = Message::Refused { reason: "version 1 is not spoken here".to_owned() };
    let mut bytes = encoded(&refused);
    bytes[6] = 9;
    assert_eq!(Message::decode_versioned(&bytes), Ok((9, refused)));
}

#[test]
fn texts_and_lists_beyond_their_limits_are_cut() {
    let hello = Hello {
        program: "x".repeat(100_000),
        systems: vec![Offer { system: SystemId(128), lowest: 0, highest: 0 }; 300],
        ..hello(&"ü".repeat(60))
    };
    let message = Message::Hello(Box::new(hello));
    let Ok(Message::Hello(read)) = Message::decode(&encoded(&message)) else { panic!("a hello") };
    assert_eq!((read.node, read.program.len()), ("ü".repeat(32), 1024));
    assert_eq!(read.systems.len(), calumma_wire::MAX_SYSTEMS);
}

#[test]
fn version_5_has_no_words_for_other_systems_and_roles() {
    let older = |message: &Message| message.encode_as(v5::VERSION, &mut Vec::new());
    assert!(!older(&sealed()));
    assert!(!older(&Message::Hello(Box::new(hello("t1")))));
    let edge = Hello { role: Role::Edge, ..hello("e1") };
    assert!(older(&Message::Hello(Box::new(edge.clone()))));
    let others = edge.systems[1..].to_vec();
    assert!(!older(&Message::Hello(Box::new(Hello { systems: others, ..edge }))));
}

/// Those of every release that speaks version 6.
#[test]
fn frames_about_paths_keep_their_bytes() {
    let address = |last: [u8; 2]| IpAddr::from([10, 0, last[0], last[1]]);
    let probe = ProbeSeen {
        from: 7,
        mark: 5,
        arrived: NO_MARK,
        sent_ns: 1000,
        received_ns: 2000,
        source: address([1, 1]),
        destination: [0xFD00, 0, 0, 0, 0, 0, 0, 1].into(),
    };
    let (hosts, destinations) = (vec![address([0, 1])], vec![address([1, 1])]);
    let seen = PathsSeen { hosts, destinations, probes: vec![probe] };
    let wanted = PathsWanted { on: true, hosts: vec![(address([1, 1]), 12)] };
    let golden = [
        "3e0000001aca06070100040a0000010100040a0001010100070005ffe803000000000000d007000000000000\
         040a00010106fd000000000000000000000000000001",
        "0e0000001aca0686010100040a0001010c00",
    ];
    let messages = [Message::PathsSeen(Box::new(seen)), Message::PathsWanted(Box::new(wanted))];
    for (message, golden) in messages.iter().zip(golden) {
        let bytes = encoded(message);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
        assert_eq!(Message::decode(&bytes).as_ref(), Ok(message));
        assert!(!message.encode_as(v5::VERSION, &mut Vec::new()));
    }
}

#[test]
fn frames_about_the_choice_of_a_carrier_keep_their_bytes() {
    let offers = vec!["tos".to_owned(), "ip-id".to_owned()];
    let marking = Marking { offers, ..Marking::default() };
    let hello = Hello { role: Role::Edge, marking, holding: Vec::new(), ..hello("e1") };
    let welcome = Welcome {
        node_id: Some(7),
        hash_key: Secret::new([9; 32]),
        epoch_length_ns: 50_000_000,
        guards: Guards { clock_ns: 1_000_000, flight_ns: 10_000_000 },
        effective_epoch: 1000,
        systems: Vec::new(),
        domain: Domain::default(),
        carrier: Some("ip-id".to_owned()),
    };
    let golden = [
        "3f0000001aca0601020065310000120063616c756d6d612d6564676520302e312e300300746f7305006f\
         75746572020300746f73050069702d696402010101c8020400",
        "530000001aca068107000909090909090909090909090909090909090909090909090909090909090909\
         0180f0fa020000000040420f00000000008096980000000000e803000000000000000000000505006970\
         2d6964",
    ];
    let messages = [Message::Hello(Box::new(hello)), Message::Welcome(Box::new(welcome))];
    for (message, golden) in messages.iter().zip(golden) {
        let bytes = encoded(message);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
        assert_eq!(Message::decode(&bytes).as_ref(), Ok(message));
    }
    // Version 5 knows no choice: a switch says the carrier that it takes where nobody chooses, and
    // no controller names one.
    let mut bytes = Vec::new();
    assert!(messages[0].encode_as(v5::VERSION, &mut bytes));
    let Ok(Message::Hello(older)) = Message::decode(&bytes) else { panic!("a hello") };
    assert_eq!(older.marking, Marking::default());
    assert!(!messages[1].encode_as(v5::VERSION, &mut Vec::new()));
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Accepted),
        any::<u64>().prop_map(|earliest| Outcome::TooLate { earliest }),
        "\\PC{0,200}".prop_map(|reason| Outcome::Invalid { reason }),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

fn kind() -> impl Strategy<Value = SideKind> {
    prop::sample::select(vec![
        SideKind::Ingress,
        SideKind::Transit,
        SideKind::Egress,
        SideKind::Host,
    ])
}

fn domain() -> impl Strategy<Value = Domain> {
    let prefix = (any::<IpAddr>(), any::<u8>()).prop_map(|(address, length)| match address {
        IpAddr::V4(address) => {
            let length = length % 33;
            let first = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Prefix::new(IpAddr::V4((address.to_bits() & first).into()), length).unwrap()
        }
        IpAddr::V6(address) => Prefix::new(IpAddr::V6(address), 128).unwrap(),
    });
    (prop::collection::vec(prefix, 0..5), 68_u16..)
        .prop_map(|(prefixes, mtu)| Domain::new(prefixes).unwrap().with_fabric_mtu(mtu).unwrap())
}

fn message() -> impl Strategy<Value = Message> {
    let id = || any::<u8>().prop_map(SystemId);
    let counters = prop::collection::vec(("[a-z.]{1,30}", any::<u64>()), 0..20);
    let held = prop::collection::vec((any::<u8>().prop_map(SystemId), bytes()), 0..4);
    let setups = prop::collection::vec((any::<(u8, u8)>(), bytes(), bytes()), 0..4);
    let probe = (any::<(u16, u8, u8)>(), any::<[u64; 2]>(), any::<[IpAddr; 2]>()).prop_map(
        |((from, mark, arrived), [sent_ns, received_ns], [source, destination])| ProbeSeen {
            from,
            mark,
            arrived,
            sent_ns,
            received_ns,
            source,
            destination,
        },
    );
    let addresses = || prop::collection::vec(any::<IpAddr>(), 0..5);
    prop_oneof![
        (addresses(), addresses(), prop::collection::vec(probe, 0..5)).prop_map(
            |(hosts, destinations, probes)| {
                Message::PathsSeen(Box::new(PathsSeen { hosts, destinations, probes }))
            }
        ),
        (any::<bool>(), prop::collection::vec(any::<(IpAddr, u16)>(), 0..5))
            .prop_map(|(on, hosts)| Message::PathsWanted(Box::new(PathsWanted { on, hosts }))),
        ("\\PC{0,16}", any::<bool>(), "\\PC{0,200}", held).prop_map(
            |(node, tofino, program, holding)| {
                let kind = if tofino { SwitchKind::Tofino } else { SwitchKind::Software };
                let offers = vec![program.chars().take(9).collect(); node.len() % 4];
                let marking = Marking { carrier: node.clone(), tunnels: node.clone(), offers };
                Message::Hello(Box::new(Hello { program, kind, marking, holding, ..hello(&node) }))
            }
        ),
        any::<[u64; 3]>().prop_map(|[sent_ns, received_ns, answered_ns]| Message::Echo {
            sent_ns,
            received_ns,
            answered_ns,
        }),
        (id(), any::<u64>(), outcome()).prop_map(|(system, effective_epoch, outcome)| {
            Message::Applied { system, effective_epoch, outcome }
        }),
        (id(), any::<(u64, u64)>(), bytes()).prop_map(|(system, (epoch, late_packets), body)| {
            Message::Sealed { system, epoch, late_packets, body }
        }),
        (id(), any::<u64>(), bytes()).prop_map(|(system, epoch, body)| Message::Notice {
            system,
            epoch,
            body
        }),
        (id(), any::<u64>(), bytes()).prop_map(|(system, effective_epoch, plan)| {
            Message::Reconfigure { system, effective_epoch, plan }
        }),
        "\\PC{0,200}".prop_map(|reason| Message::Refused { reason }),
        (id(), any::<(u64, u64, u64)>(), kind(), counters, bytes()).prop_map(
            |(system, (epoch, stall_ns, packets), side, counters, body)| {
                Message::Side(Box::new(Side {
                    system,
                    epoch,
                    side,
                    stall_ns,
                    packets,
                    counters,
                    body,
                }))
            }
        ),
        (any::<([u8; 32], bool)>(), any::<[u64; 4]>(), 1u16.., setups, domain()).prop_map(
            |(
                (key, public),
                [epoch_length_ns, clock_ns, flight_ns, effective_epoch],
                id,
                setups,
                domain,
            )| {
                let setup = |((system, version), setup, plan)| SystemSetup {
                    system: SystemId(system),
                    version,
                    setup,
                    plan,
                };
                let generators = if public { Generators::Public } else { Generators::Secret };
                Message::Welcome(Box::new(Welcome {
                    node_id: Some(id),
                    hash_key: Secret { key, generators },
                    epoch_length_ns,
                    guards: Guards { clock_ns, flight_ns },
                    effective_epoch,
                    systems: setups.into_iter().map(setup).collect(),
                    domain,
                    carrier: public.then(|| "ip-id".to_owned()),
                }))
            }
        ),
    ]
}

/// They go into logs and onto terminals.
#[test]
fn texts_have_no_control_characters() {
    let reason = "line\nline \u{1b}[2J \u{9b}2J".to_owned();
    let read = Message::decode(&encoded(&Message::Refused { reason })).unwrap();
    assert_eq!(read, Message::Refused { reason: "line?line ?[2J ?2J".to_owned() });
}

/// The messages of a stream that comes in pieces of so many bytes, and whether it ends within a
/// frame.
fn read_in_pieces(stream: &[u8], piece: usize) -> (Vec<Message>, bool) {
    let (mut reader, mut read) = (FrameReader::new(), Vec::new());
    for bytes in stream.chunks(piece) {
        reader.push(bytes);
        read.extend(std::iter::from_fn(|| reader.next_message().unwrap()));
    }
    (read, reader.is_within_frame())
}

proptest! {
    #[test]
    fn messages_come_out_as_they_went_in(message in message()) {
        prop_assert_eq!(Message::decode(&encoded(&message)), Ok(message));
    }

    #[test]
    fn a_stream_cut_anywhere_gives_the_same(
        messages in prop::collection::vec(message(), 1..6),
        piece in 1usize..200,
    ) {
        let stream: Vec<u8> = messages.iter().flat_map(encoded).collect();
        prop_assert_eq!(read_in_pieces(&stream, piece), (messages, false));
    }

    #[test]
    fn a_message_in_parts_comes_out_as_it_went_in(
        messages in prop::collection::vec((message(), message()), 1..4),
        most in 1usize..60,
        piece in 1usize..200,
    ) {
        let mut stream = Vec::new();
        let mut sent = Vec::new();
        for (cut_up, between) in messages {
            let frames = cut(&encoded(&cut_up), most);
            let first = first_frame(&frames);
            prop_assert!(is_part(&frames) && Message::decode(&frames[..first]).is_err());
            stream.extend_from_slice(&frames[..first]);
            if first < frames.len() {
                // Others may stand between parts, and come first.
                stream.extend(encoded(&between));
                sent.push(between);
            }
            stream.extend_from_slice(&frames[first..]);
            sent.push(cut_up);
        }
        prop_assert_eq!(read_in_pieces(&stream, piece), (sent, false));
    }

    #[test]
    fn a_frame_cut_short_is_an_error_or_a_shorter_body(message in message(), cut in 1usize..100) {
        let mut bytes = encoded(&message);
        let end = bytes.len().saturating_sub(cut).max(HEADER_BYTES);
        bytes.truncate(end);
        let length = (end - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        match (Message::decode(&bytes), message) {
            (Err(error), _) => prop_assert!(error.offset <= end, "{}", error),
            (Ok(Message::Side(read)), Message::Side(sent)) => {
                prop_assert!(sent.body.starts_with(&read.body) && read.body.len() < sent.body.len());
            }
            (Ok(Message::Sealed { body: read, .. }), Message::Sealed { body: sent, .. })
            | (Ok(Message::Notice { body: read, .. }), Message::Notice { body: sent, .. }) => {
                prop_assert!(sent.starts_with(&read) && read.len() < sent.len());
            }
            (Ok(read), sent) => prop_assert_eq!(read, sent),
        }
    }

    #[test]
    fn arbitrary_bytes_give_one_error_with_place_and_reason(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        if let Err(error) = Message::decode(&bytes) {
            prop_assert!(error.offset <= bytes.len());
            prop_assert!(error.to_string().starts_with("byte "));
        }
        let mut reader = FrameReader::new();
        reader.push(&bytes);
        while let Ok(Some(_)) = reader.next_message() {}
    }

    #[test]
    fn arbitrary_fields_of_every_kind_never_panic(
        kind in prop::sample::select(vec![1u8, 2, 3, 4, 5, 6, 7, 9, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86]),
        version in prop::sample::select(vec![v5::VERSION, VERSION]),
        body in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut bytes = ((body.len() + 4) as u32).to_le_bytes().to_vec();
        bytes.extend([0x1A, 0xCA, version, kind]);
        bytes.extend(body);
        match Message::decode(&bytes) {
            Ok(message) => prop_assert_eq!(Message::decode(&encoded(&message)), Ok(message)),
            Err(error) => prop_assert!(error.offset <= bytes.len()),
        }
    }
}
