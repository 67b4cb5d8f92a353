//! The constants of `p4src/edge.p4`: sizes and numbers of the contract, as P4 text.
//!
//! `p4src/include/generated/contract.p4` is the output of [`contract`] for the default layout; a
//! test fails when they differ. Another layout is another file, and another compiled program.

use std::fmt::Write;

use calumma_bfrt::{Info, InfoError};
use calumma_sketch::hash::{ROTATIONS, crc};
use calumma_sketch::{Arithmetic, Insertion, KeyKind, Layout, Level, fermat};

use crate::collection::Source;
use crate::collector::registers;

/// Bits of a hash word that the program keeps for a bucket array.
pub const WORD_BITS: u32 = 16;

/// A layout that the P4 program can't have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unbuildable {
    /// The program reads IPv4 headers, and a bucket of wide keys has more words than it has stages for.
    #[error(
        "keys = \"dual\": a Tofino edge measures IPv4 only; set keys = \"ipv4\", or run software edges"
    )]
    Keys,
    /// The classifier is built for one array of 8-bit and one of 16-bit counters.
    #[error(
        "classifier: the P4 program has one array of 8-bit and one of 16-bit counters, each of \
         2 to 32768 counters, a power of two"
    )]
    Classifier,
    /// A pipeline can't raise a counter of one stage by what those of later stages hold.
    #[error(
        "insertion = \"cu\": a Tofino can't compare counters before it raises one; set insertion = \"cm\", \
         or run software edges"
    )]
    Insertion,
    /// The encoders are built for three arrays.
    #[error("arrays = {0}: the encoders of the P4 program have 3")]
    Arrays(u32),
    /// Indexes are words of 16 bits after masking.
    #[error("upstream_buckets = {0}: the P4 program indexes at most 8192 buckets an array")]
    Buckets(u32),
}

/// Most buckets of an array: the mask of a part keeps up to three bits more than its length has.
const MOST_BUCKETS: u32 = 1 << (WORD_BITS - 3);

/// Checks that the program can be built for the layout.
///
/// # Errors
/// Names what the program is not made for.
pub fn check(layout: &Layout) -> Result<(), Unbuildable> {
    if layout.keys != KeyKind::Ipv4 {
        return Err(Unbuildable::Keys);
    }
    if layout.insertion != Insertion::Cm {
        return Err(Unbuildable::Insertion);
    }
    let fits = |level: &Level, bits| {
        let counters = level.counters;
        level.bits == bits && counters.is_power_of_two() && (2..=1 << 15).contains(&counters)
    };
    match &layout.classifier[..] {
        [narrow, wide] if fits(narrow, 8) && fits(wide, 16) => {}
        _ => return Err(Unbuildable::Classifier),
    }
    if layout.arrays != 3 {
        return Err(Unbuildable::Arrays(layout.arrays));
    }
    if layout.upstream_buckets > MOST_BUCKETS {
        return Err(Unbuildable::Buckets(layout.upstream_buckets));
    }
    Ok(())
}

/// A program on a switch that was built for another layout.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// Other sizes.
    #[error(
        "the program on the switch holds {found} elements in {register}, the controller's layout \
         wants {wanted}: build the program with the constants that `calumma-switchd contract` writes \
         for that layout"
    )]
    Size {
        /// The register.
        register: String,
        /// Its elements, both groups.
        found: u64,
        /// What the layout asks for.
        wanted: u64,
    },
    /// Another arithmetic, or another program altogether.
    #[error(
        "the program on the switch is not this release's edge.p4 with {arithmetic:?} arithmetic: \
         {problem}"
    )]
    Program {
        /// The layout's arithmetic.
        arithmetic: Arithmetic,
        /// What is missing.
        problem: InfoError,
    },
}

/// Checks that the program on a switch is built for the layout: its registers are there and as large
/// as they should be. Constants other than sizes can't be seen from outside.
///
/// # Errors
/// The first register that is not as it should be, and the remedy.
pub fn check_built(info: &Info, layout: &Layout) -> Result<(), Mismatch> {
    for source in Source::ALL {
        for register in registers(source, layout.arithmetic) {
            let table = info
                .table(&register)
                .map_err(|problem| Mismatch::Program { arithmetic: layout.arithmetic, problem })?;
            let wanted = 2 * u64::from(source.elements(layout));
            if table.size != wanted {
                return Err(Mismatch::Size { register, found: table.size, wanted });
            }
        }
    }
    Ok(())
}

/// The macros that choose the layout's arithmetic when the program is compiled.
pub fn defines(layout: &Layout) -> Vec<(String, String)> {
    match layout.arithmetic {
        Arithmetic::Prime => Vec::new(),
        Arithmetic::Wrapping => vec![("WRAPPING_ARITHMETIC".to_owned(), "1".to_owned())],
    }
}

/// The text of `generated/contract.p4` for a layout.
///
/// # Errors
/// When the program can't be built for it.
pub fn contract(layout: &Layout) -> Result<String, Unbuildable> {
    check(layout)?;
    let [narrow, wide] = [layout.classifier[0].counters, layout.classifier[1].counters];
    let fingerprint = if layout.fingerprint { "y[31:12]" } else { "20w0" };
    let mut text = String::from(
        "// Generated by p4src/agent/src/program.rs from the layout and the contract.\n\
         // Don't edit: CALUMMA_BLESS=1 cargo test -p calumma-switchd writes it anew.\n\n\
         #ifndef CALUMMA_CONTRACT\n#define CALUMMA_CONTRACT\n\n\
         // Generators of the two CRCs over the key.\n",
    );
    let mut line = |args: std::fmt::Arguments<'_>| {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{args}");
    };
    line(format_args!("const bit<32> CRC_X = 32w{:#010X};", crc::CASTAGNOLI));
    line(format_args!("const bit<32> CRC_Y = 32w{:#010X};", crc::ISO_HDLC));
    line(format_args!(
        "\n// The low {WORD_BITS} bits of the second CRC, rotated left for each array."
    ));
    for (array, rotation) in ROTATIONS[..3].iter().enumerate() {
        line(format_args!("#define ROTATED_{array}(y) {}", rotated("y", *rotation)));
    }
    line(format_args!("\n// Fragments."));
    line(format_args!("const bit<32> PRIME = 32w{};", fermat::P));
    line(format_args!("#define FINGERPRINT(y) {fingerprint}"));
    line(format_args!("\n// Sizes of one group."));
    for (level, counters) in [(8, narrow), (16, wide)] {
        line(format_args!("const bit<32> CLASSIFIER_{level} = {counters};"));
    }
    line(format_args!("const bit<32> UPSTREAM_BUCKETS = {};", layout.upstream_buckets));
    line(format_args!("const bit<32> DOWNSTREAM_BUCKETS = {};", layout.downstream_buckets));
    line(format_args!(
        "\n// A counter's index: the bits of its word, and what lies above them in a hash's input."
    ));
    for (level, counters) in [(8, narrow), (16, wide)] {
        let bits = counters.ilog2();
        let above = WORD_BITS - bits;
        let group = if above > 1 { format!("{}w0, group", above - 1) } else { "group".to_owned() };
        line(format_args!("#define INDEX_{level} {}:0", bits - 1));
        line(format_args!("#define HIGH_{level} {}:16", bits + 15));
        line(format_args!("#define ABOVE_{level} {above}w0"));
        line(format_args!("#define GROUP_{level}(group) {group}"));
    }
    line(format_args!("\n#endif"));
    Ok(text)
}

/// The low [`WORD_BITS`] bits of a 32-bit field rotated left, as items of a P4 list.
fn rotated(field: &str, by: u32) -> String {
    // Bit i of the rotation is bit (i - by) mod 32 of the field.
    if by == 0 {
        return format!("{field}[{}:0]", WORD_BITS - 1);
    }
    if by >= WORD_BITS {
        return format!("{field}[{}:{}]", 31 - (by - WORD_BITS), 32 - by);
    }
    format!("{field}[{}:0], {field}[31:{}]", WORD_BITS - 1 - by, 32 - by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_are_cut_from_the_right_bits() {
        assert_eq!(rotated("y", 0), "y[15:0]");
        assert_eq!(rotated("y", 11), "y[4:0], y[31:21]");
        assert_eq!(rotated("y", 21), "y[26:11]");
        assert_eq!(rotated("y", 16), "y[31:16]");
    }

    #[test]
    fn a_layout_the_program_is_not_made_for_says_why() {
        assert_eq!(check(&Layout::default()), Ok(()));
        let dual = Layout { keys: KeyKind::Dual, ..Layout::default() };
        assert_eq!(check(&dual), Err(Unbuildable::Keys));
        let conservative = Layout { insertion: Insertion::Cu, ..Layout::default() };
        assert_eq!(check(&conservative), Err(Unbuildable::Insertion));
        let four = Layout { arrays: 4, ..Layout::default() };
        assert_eq!(check(&four), Err(Unbuildable::Arrays(4)));
        let large = Layout { upstream_buckets: 8193, ..Layout::default() };
        assert_eq!(check(&large), Err(Unbuildable::Buckets(8193)));
        let odd = Layout { classifier: vec![Level::new(8, 1000)], ..Layout::default() };
        assert_eq!(check(&odd), Err(Unbuildable::Classifier));
    }
}
