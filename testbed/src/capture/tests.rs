//! Captures made by hand, byte by byte, so that the reader is not checked by its own writer alone.

use proptest::prelude::*;

use super::*;

/// Writes numbers in one byte order.
#[derive(Clone, Copy)]
enum Endian {
    Little,
    Big,
}

impl Endian {
    fn u16(self, v: u16) -> [u8; 2] {
        match self {
            Endian::Little => v.to_le_bytes(),
            Endian::Big => v.to_be_bytes(),
        }
    }

    fn u32(self, v: u32) -> [u8; 4] {
        match self {
            Endian::Little => v.to_le_bytes(),
            Endian::Big => v.to_be_bytes(),
        }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|&w| self.u32(w)).collect()
    }

    fn pcap_header(self, magic: u32, link: u32) -> Vec<u8> {
        let version = [self.u16(2), self.u16(4)].concat();
        [self.u32(magic).to_vec(), version, self.words(&[0, 0, 65535, link])].concat()
    }

    fn pcap_packet(self, seconds: u32, fraction: u32, original: u32, bytes: &[u8]) -> Vec<u8> {
        let header = self.words(&[seconds, fraction, bytes.len() as u32, original]);
        [header, bytes.to_vec()].concat()
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let total = self.u32(body.len() as u32 + 12);
        [&self.u32(kind)[..], &total, &body, &total].concat()
    }

    fn section(self) -> Vec<u8> {
        let version = [self.u16(1), self.u16(0)].concat();
        let magic = self.u32(0x1a2b_3c4d).to_vec();
        self.block(0x0a0d_0d0a, &[magic, version, vec![0xff; 8]].concat())
    }

    fn interface(self, link: u16, snap_len: u32, options: &[u8]) -> Vec<u8> {
        let fixed = [&self.u16(link)[..], &[0, 0], &self.u32(snap_len)].concat();
        self.block(1, &[fixed, options.to_vec()].concat())
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut padded = value.to_vec();
        padded.resize(value.len().next_multiple_of(4), 0);
        [&self.u16(code)[..], &self.u16(value.len() as u16), &padded].concat()
    }

    fn enhanced(self, interface: u32, ticks: u64, original: u32, bytes: &[u8]) -> Vec<u8> {
        let (high, low) = ((ticks >> 32) as u32, ticks as u32);
        let fixed = self.words(&[interface, high, low, bytes.len() as u32, original]);
        self.block(6, &[fixed, bytes.to_vec()].concat())
    }
}

use Endian::{Big, Little};

type Packet = (u64, u32, Vec<u8>);

/// Everything a capture gives: its packets, and how it ended.
fn read(file: &[u8]) -> (Vec<Packet>, Option<CaptureError>) {
    let mut packets = Vec::new();
    let mut capture = match Capture::new(file) {
        Ok(capture) => capture,
        Err(error) => return (packets, Some(error)),
    };
    loop {
        match capture.next_record() {
            Ok(Some(r)) => packets.push((r.timestamp_ns, r.original_len, r.bytes.to_vec())),
            Ok(None) => return (packets, None),
            Err(error) => {
                assert!(capture.next_record().unwrap().is_none(), "an error is the end");
                return (packets, Some(error));
            }
        }
    }
}

fn read_whole(file: &[u8]) -> Vec<Packet> {
    let (packets, error) = read(file);
    assert!(error.is_none(), "{}", error.unwrap());
    packets
}

fn message(file: &[u8]) -> String {
    read(file).1.expect("an error").to_string()
}

#[test]
fn pcap_is_read_in_both_byte_orders_and_both_resolutions() {
    for endian in [Little, Big] {
        for (magic, fraction, ns) in [(0xa1b2_c3d4, 7, 7_000), (0xa1b2_3c4d, 7, 7)] {
            let file = [
                endian.pcap_header(magic, 1),
                endian.pcap_packet(1_500_000_000, fraction, 1514, b"abc"),
                endian.pcap_packet(1_500_000_001, 0, 0, b"defgh"),
            ]
            .concat();
            let expected = [
                (1_500_000_000_000_000_000 + ns, 1514, b"abc".to_vec()),
                (1_500_000_001_000_000_000, 5, b"defgh".to_vec()),
            ];
            assert_eq!(read_whole(&file), expected);
        }
    }
}

#[test]
fn what_the_writer_writes_is_read_back() {
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    let packets: Vec<Packet> =
        vec![(1, 64, vec![1; 60]), (u64::from(u32::MAX) * 1_000_000_000, 0, vec![])];
    for (time, len, bytes) in &packets {
        writer.write(*time, *len, bytes).unwrap();
    }
    assert!(writer.write((1 << 32) * 1_000_000_000, 0, &[]).is_err(), "a year pcap can't say");
    assert!(writer.write(0, 0, &vec![0; MAX_PACKET as usize + 1]).is_err());
    assert_eq!(read_whole(&writer.finish().unwrap()), packets);
}

#[test]
fn pcapng_with_several_sections_interfaces_and_resolutions_is_read() {
    for (first, second) in [(Little, Big), (Big, Little)] {
        let file = [
            first.section(),
            first.interface(1, 0, &[]),
            first.interface(1, 0, &first.option(9, &[9])),
            first.enhanced(0, 5, 100, b"microseconds"),
            first.block(0x0bad, &[0; 400]),
            first.enhanced(1, 5, 3, b"nanoseconds"),
            second.section(),
            second.interface(
                1,
                4,
                &[second.option(2, b"eth0"), second.option(9, &[0x80 | 10]), second.option(0, &[])]
                    .concat(),
            ),
            second.enhanced(0, 1 << 32 | 1024, 60, b"2^-10 seconds"),
            second.block(3, &[&second.u32(60)[..], b"snap"].concat()),
        ]
        .concat();
        let two = (1_u64 << 22) * 1_000_000_000 + 1_000_000_000;
        let expected = [
            (5_000, 100, b"microseconds".to_vec()),
            (5, 11, b"nanoseconds".to_vec()),
            (two, 60, b"2^-10 seconds".to_vec()),
            (two, 60, b"snap".to_vec()),
        ];
        assert_eq!(read_whole(&file), expected);
    }
}

#[test]
fn the_packet_block_of_old_writers_is_read() {
    let body = [&Little.u16(0)[..], &Little.u16(9), &Little.words(&[0, 2, 3, 77]), b"old"].concat();
    let file = [Little.section(), Little.interface(1, 0, &[]), Little.block(2, &body)].concat();
    assert_eq!(read_whole(&file), [(2_000, 77, b"old".to_vec())]);
}

#[test]
fn times_are_exact_at_every_resolution_and_offset() {
    let at = |resolution: u8, offset: i64, ticks: u64| {
        let options =
            [Big.option(9, &[resolution]), Big.option(14, &offset.to_be_bytes())].concat();
        let file =
            [Big.section(), Big.interface(1, 0, &options), Big.enhanced(0, ticks, 0, &[])].concat();
        let (packets, error) = read(&file);
        packets.first().map(|p| p.0).ok_or_else(|| error.unwrap().to_string())
    };
    assert_eq!(at(0, 0, 3), Ok(3_000_000_000));
    assert_eq!(at(3, -2, 3_001), Ok(1_001_000_000));
    assert_eq!(at(12, 0, 5_999), Ok(5));
    assert_eq!(at(127, 1, u64::MAX), Ok(1_000_000_000));
    assert_eq!(at(0x80 | 32, 0, 3 << 31), Ok(1_500_000_000));
    assert_eq!(at(0xff, 0, u64::MAX), Ok(0));
    assert!(at(0, 0, u64::MAX).unwrap_err().contains("time"));
    assert!(at(6, i64::MIN, 0).unwrap_err().contains("time"));
}

#[test]
fn a_pcap_cut_at_any_byte_gives_what_is_whole_and_says_where_it_ends() {
    let header = Little.pcap_header(0xa1b2_c3d4, 1);
    let packets = [Little.pcap_packet(1, 0, 9, b"first"), Little.pcap_packet(2, 0, 9, b"second")];
    every_cut(&header, &packets, header.len());
}

#[test]
fn a_pcapng_cut_at_any_byte_gives_what_is_whole_and_says_where_it_ends() {
    let section = Big.section();
    let header = [section.clone(), Big.interface(1, 0, &Big.option(9, &[9]))].concat();
    let packets = [Big.enhanced(0, 1, 9, b"first"), Big.enhanced(0, 2, 9, b"second")];
    every_cut(&header, &packets, section.len());
}

/// Cuts a capture at each byte; `head` bytes are the file's own header.
fn every_cut(header: &[u8], packets: &[Vec<u8>], head: usize) {
    let whole = [header.to_vec(), packets.concat()].concat();
    let all = read_whole(&whole);
    assert_eq!(all.len(), packets.len());
    let mut ends = vec![header.len()];
    for packet in packets {
        ends.push(ends[ends.len() - 1] + packet.len());
    }
    for cut in 0..whole.len() {
        let (read, error) = read(&whole[..cut]);
        let given = ends.iter().skip(1).filter(|&&end| end <= cut).count();
        assert_eq!(read, all[..given], "cut at {cut}");
        if cut == head || ends.contains(&cut) {
            assert!(error.is_none(), "cut at {cut}, between packets");
            continue;
        }
        let error = error.unwrap_or_else(|| panic!("no error, cut at {cut}"));
        let Fault::Truncated { have, need, .. } = error.fault else {
            panic!("cut at {cut}: {error}");
        };
        assert!(have < need, "cut at {cut}: {error}");
        if cut < head {
            assert_eq!((error.packet, error.offset), (0, 0));
        } else {
            assert_eq!(error.packet, given as u64 + 1, "cut at {cut}");
            let begun = if cut < header.len() { head } else { ends[given] };
            assert_eq!(error.offset, begun as u64, "cut at {cut}");
        }
    }
}

#[test]
fn a_length_that_lies_is_refused_with_the_packet_and_its_offset() {
    let mut file = Little.pcap_header(0xa1b2_c3d4, 1);
    file.extend(Little.pcap_packet(0, 0, 4, b"good"));
    file.extend(Little.words(&[0, 0, 0x7fff_ffff, 60]));
    let said = message(&file);
    assert!(said.starts_with("packet 2 at byte 44: the packet claims 2147483647"), "{said}");
    assert!(said.contains("head -c 44 FILE"), "{said}");
    assert_eq!(read(&file).0.len(), 1);
}

#[test]
fn blocks_that_contradict_themselves_are_refused() {
    let start = [Little.section(), Little.interface(1, 0, &[])].concat();
    let refused = |block: Vec<u8>| message(&[start.clone(), block].concat());
    assert!(refused(Little.words(&[6, 13, 0])).contains("multiple of 4"));
    assert!(refused(Little.words(&[6, 8, 0])).contains("multiple of 4"));
    assert!(refused(Little.words(&[99, 16, 0, 20])).contains("closes with 20"));
    assert!(refused(Little.block(6, &Little.words(&[0, 0]))).contains("no room"));
    assert!(refused(Little.block(6, &Little.words(&[0, 0, 0, 8, 8, 0]))).contains("no room"));
    assert!(refused(Little.enhanced(4, 0, 0, &[])).contains("names interface 4"));
    assert!(refused(Little.interface(1, 0, &Little.words(&[0x00ff_0009]))).contains("option 9"));
    let simple_without_interface =
        [Little.section(), Little.block(3, &Little.words(&[0]))].concat();
    assert!(message(&simple_without_interface).contains("names interface 0"));
}

#[test]
fn a_foreign_file_is_named_with_a_remedy() {
    assert!(message(b"").contains("the file is empty"));
    assert!(message(&[0x1f, 0x8b, 8, 0]).contains("gunzip FILE"));
    assert!(message(&[0x28, 0xb5, 0x2f, 0xfd]).contains("unzstd FILE"));
    assert!(message(b"GIF89a").contains("47 49 46 38"));
    let cooked = message(&Little.pcap_header(0xa1b2_c3d4, 113));
    assert!(cooked.contains("113 (Linux cooked"), "{cooked}");
    let raw = [Little.section(), Little.interface(101, 0, &[])].concat();
    assert_eq!(read_whole(&raw), [], "an interface without packets does no harm");
    assert!(message(&[raw, Little.enhanced(0, 0, 0, &[])].concat()).contains("101 (raw IP)"));
}

#[test]
fn a_missing_file_is_an_error_that_says_so() {
    let error = Capture::open(std::path::Path::new("/nonexistent.pcap")).unwrap_err();
    assert!(error.to_string().contains("check that the file exists"), "{error}");
}

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let time = 0..u64::from(u32::MAX) * 1_000_000_000;
    let bytes = proptest::collection::vec(any::<u8>(), 0..100);
    proptest::collection::vec((time, bytes), 0..20).prop_map(|packets| {
        packets.into_iter().map(|(t, bytes)| (t, bytes.len() as u32, bytes)).collect()
    })
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        magic in prop::sample::select(vec![
            vec![], vec![0xd4, 0xc3, 0xb2, 0xa1], vec![0xa1, 0xb2, 0x3c, 0x4d], Little.section(), Big.section(),
        ]),
        rest in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        read(&[magic, rest].concat());
    }

    #[test]
    fn a_capture_with_a_byte_changed_never_panics(packets in packets(), at in any::<usize>(), byte in any::<u8>()) {
        let mut pcapng = [Little.section(), Little.interface(1, 96, &Little.option(9, &[9]))].concat();
        for (time, len, bytes) in &packets {
            pcapng.extend(Little.enhanced(0, *time, *len, bytes));
        }
        prop_assert_eq!(read_whole(&pcapng), packets);
        let at = at % pcapng.len();
        pcapng[at] = byte;
        read(&pcapng);
    }
}
