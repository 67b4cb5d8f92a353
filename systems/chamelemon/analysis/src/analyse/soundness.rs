//! Whether an epoch can be trusted, and if not, why.
//!
//! The delta encoders hold exactly the losses only if every packet was recorded once at its ingress
//! edge and once, if it was not lost, at its egress edge, in buckets that mean the same everywhere.
//! One edge that fails in this makes every loss doubtful, since its packets may be anybody's.

use calumma_chamelemon::Attention;
use calumma_chamelemon::frames::Defects;

use super::input::{EdgeInput, EpochInput};
use super::strays;
use crate::report::{Cause, CauseKind};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Expected edges of which something is missing.
    pub(super) missing_edges: Vec<String>,
    /// What is wrong.
    pub(super) causes: Vec<Cause>,
}

impl Verdict {
    /// Whether nothing is wrong.
    pub(super) fn is_sound(&self) -> bool {
        self.causes.is_empty()
    }
}

/// Judges an epoch that is over.
pub(super) fn judge(input: &EpochInput) -> Verdict {
    judge_as(input, Seals::Wanted)
}

/// Judges an epoch by its sides, whether or not its edges have sealed it yet.
pub(super) fn judge_sides(input: &EpochInput) -> Verdict {
    judge_as(input, Seals::ToCome)
}

/// What a missing seal means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seals {
    Wanted,
    ToCome,
}

fn judge_as(input: &EpochInput, seals: Seals) -> Verdict {
    let mut verdict = Verdict::default();
    if input.edges.is_empty() {
        let what = "no edge is expected".to_owned();
        verdict.causes.push(Cause::of_network(CauseKind::Missing, what));
    }
    for edge in &input.edges {
        judge_edge(edge, seals, &mut verdict);
    }
    let mut first: Option<(&str, &Attention)> = None;
    for edge in &input.edges {
        let sides = edge.ingress.iter().map(|side| ("ingress", &side.attention));
        let sides = sides.chain(edge.egress.iter().map(|side| ("egress", &side.attention)));
        for (side, attention) in sides {
            match first {
                None => first = Some((&edge.edge, attention)),
                Some((_, agreed)) if agreed == attention => {}
                Some((other, agreed)) => verdict.causes.push(Cause::at(
                    &edge.edge,
                    CauseKind::Attention,
                    format_args!(
                        "its {side} side measured with {}, {other} with {}",
                        in_words(attention),
                        in_words(agreed),
                    ),
                )),
            }
        }
    }
    verdict
}

fn judge_edge(input: &EdgeInput, seals: Seals, verdict: &mut Verdict) {
    let name = &input.edge;
    let mut missing = Vec::new();
    if input.ingress.is_none() {
        missing.push("ingress side");
    }
    if input.egress.is_none() {
        missing.push("egress side");
    }
    if input.late_packets.is_none() && seals == Seals::Wanted {
        missing.push("seal");
    }
    if input.other_key {
        verdict.missing_edges.push(name.clone());
        let what = "it hashed flows by another key than the epoch's: the change of the hash key reached \
                    it too late";
        verdict.causes.push(Cause::at(name, CauseKind::Missing, what));
    } else if !missing.is_empty() {
        verdict.missing_edges.push(name.clone());
        let what = if missing.len() == 3 {
            "nothing came".to_owned()
        } else {
            format!("no {} came", missing.join(" and no "))
        };
        let note = input.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
        let what = format_args!("{what} in time{note}");
        verdict.causes.push(Cause::at(name, CauseKind::Missing, what));
    }

    if let Some(problem) = &input.clock {
        verdict.causes.push(Cause::at(name, CauseKind::Clock, problem));
    }
    if let Some(side) = &input.ingress {
        judge_defects(name, "ingress", &side.defects, &mut verdict.causes);
    }
    if let Some(side) = &input.egress {
        judge_defects(name, "egress", &side.defects, &mut verdict.causes);
        let foreign = side.defects.foreign_packets;
        if foreign > 0 && !strays::misfits_are_known(input) {
            let what = format_args!(
                "{foreign} packets carried a hierarchy that has no buckets in this epoch"
            );
            verdict.causes.push(Cause::at(name, CauseKind::Mark, what).of_packets(foreign));
        }
    }
    if let Some(late) =
        input.late_packets.filter(|&late| late > 0 && !strays::late_are_known(input))
    {
        let what = format_args!(
            "{late} packets left the network after their epoch was closed: the flight guard may be \
             too short, or clocks differ"
        );
        verdict.causes.push(Cause::at(name, CauseKind::Late, what).of_packets(late));
    }
}

fn judge_defects(name: &str, side: &str, defects: &Defects, causes: &mut Vec<Cause>) {
    let Defects { stall_ns, mixed_attention, .. } = *defects;
    if stall_ns > 0 {
        let late_ms = stall_ns as f64 / 1e6;
        let what = format_args!(
            "its {side} rotation came {late_ms:.1} ms late, more than the guards allow"
        );
        causes.push(Cause::at(name, CauseKind::Rotation, what));
    }
    if mixed_attention {
        let what = format_args!("its lcores measured the {side} side with different attention");
        causes.push(Cause::at(name, CauseKind::Attention, what));
    }
}

/// The attention that the edges measured under; the planned one where none came.
pub(super) fn attention_of(input: &EpochInput) -> Attention {
    let mut sides = input.edges.iter().filter_map(|edge| {
        let ingress = edge.ingress.as_ref().map(|side| side.attention);
        ingress.or(edge.egress.as_ref().map(|side| side.attention))
    });
    sides.next().unwrap_or(input.planned)
}

fn in_words(attention: &Attention) -> String {
    let Attention { t_h, t_l, sample_rate, partition } = attention;
    format!(
        "t_h {t_h}, t_l {t_l}, sample rate {}, hh/hl/ll {}/{}/{}",
        sample_rate.as_f64(),
        partition.hh,
        partition.hl,
        partition.ll
    )
}
