//! What it costs to send every packet's INT stack to a collector, as the SketchINT paper's passport
//! mode does, beside collecting sketches (section VI-C of the paper).

/// Bytes of a report on one packet of five hops, on the wire: Ethernet, IPv4 and UDP (42), the
/// group and report headers of Telemetry Report 2.0 (12), the packet's own headers as for UDP (42),
/// shim and metadata header (16), five hops of two words (40).
pub const REPORT_BYTES: usize = 42 + 12 + 42 + 16 + 40;

/// Bytes of what is collected in a frame of 9,000 bytes over TCP.
const IN_FRAME: f64 = 8_948.0;

/// Normalised bandwidth: collected bytes of a window of so many packets, over those of their
/// reports.
pub fn share_of_bytes(collected: f64, packets: usize) -> f64 {
    collected / (packets.max(1) * REPORT_BYTES) as f64
}

/// Normalised packet number: frames that what is collected takes, over reports.
pub fn share_of_packets(collected: f64, packets: usize) -> f64 {
    (collected / IN_FRAME).ceil() / packets.max(1) as f64
}
