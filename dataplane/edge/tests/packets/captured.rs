//! Packets of real traffic. Fuzz targets begin with them.

use std::fs;
use std::path::Path;

/// Packets in a capture file, at most `most` of them: bytes and length on the wire.
pub(crate) fn captured(path: &Path, most: usize) -> Vec<(Vec<u8>, usize)> {
    let bytes = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut packets = Vec::new();
    let mut at = 24;
    while at + 16 <= bytes.len() && packets.len() < most {
        let (len, wire_len) = (word(at + 8), word(at + 12));
        packets.push((bytes[at + 16..at + 16 + len].to_vec(), wire_len));
        at += 16 + len;
    }
    packets
}

/// Packets that a fuzz target begins with.
const SEEDS: usize = 500;

/// Writes packets, each behind `front`, to the folder that `CALUMMA_SEEDS` names.
#[allow(dead_code, reason = "fuzz targets use it, tests do not")]
pub(crate) fn write_seeds(front: &[u8]) {
    let Some(folder) = std::env::var_os("CALUMMA_SEEDS") else { return };
    let Some(path) = calumma_testenv::capture("mixed-captures.pcap") else { return };
    for (number, (bytes, _)) in captured(&path, SEEDS).into_iter().enumerate() {
        let seed = Path::new(&folder).join(number.to_string());
        fs::write(seed, [front, &bytes].concat()).unwrap();
    }
}
