//! Whether the packets that edges counted are those that their encoders hold.
//!
//! Every packet that an edge records is counted by hierarchy and put into the encoder of that
//! hierarchy. What a complete delta encoder holds in all flows together is therefore exactly what
//! entered under its hierarchies less what left, whatever the network did. Where it isn't, an
//! encoder holds something else than packets that were recorded, and none of its flows is certain.

use calumma_plane::Hierarchy::{self, HhCandidate, HlCandidate, SampledLl};

use super::explain::Net;
use super::input::EpochInput;
use crate::report::{Cause, CauseKind, DecodeReport, DecodeState, IndistinctFlows, LossClass};

/// Why the encoders can't be right; nothing where they balance, or edges did not count.
pub(super) fn contradiction(
    input: &EpochInput,
    decode: &DecodeReport,
    nets: &[Net],
    indistinct: &[IndistinctFlows],
) -> Option<Cause> {
    let sets = |class| {
        let of_class = indistinct.iter().filter(move |set| set.class == class);
        of_class.map(|set| set.packets).sum::<i64>()
    };
    let heavy = nets.iter().map(|net| net.heavy).sum::<i64>() + sets(LossClass::Heavy);
    let light = nets.iter().map(|net| net.light).sum::<i64>() + sets(LossClass::Light);
    let encoders: [(&str, DecodeState, &[Hierarchy], i64); 2] = [
        ("HL", decode.hl, &[HlCandidate, HhCandidate], heavy),
        ("LL", decode.ll, &[SampledLl], light),
    ];
    encoders.into_iter().find_map(|(encoder, state, hierarchies, held)| {
        let missing = missing(input, hierarchies).filter(|_| state == DecodeState::Complete)?;
        (missing != held).then(|| Cause {
            packets: held.abs_diff(missing),
            ..Cause::of_network(
                CauseKind::Balance,
                format!(
                    "of the packets of the {encoder} encoders {missing} more entered than left, but \
                     the encoders hold {held}: they can't be right"
                ),
            )
        })
    })
}

/// Packets of hierarchies that entered less those that left, where all edges counted them.
fn missing(input: &EpochInput, hierarchies: &[Hierarchy]) -> Option<i64> {
    input.edges.iter().try_fold(0, |sum, edge| {
        let (entered, left) = (edge.ingress.as_ref()?.balance?, edge.egress.as_ref()?.balance?);
        let of = |hierarchy: &Hierarchy| entered.of(*hierarchy) as i64 - left.of(*hierarchy) as i64;
        Some(sum + hierarchies.iter().map(of).sum::<i64>())
    })
}
