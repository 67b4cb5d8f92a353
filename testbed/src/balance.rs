//! Packets that ought to be as many by one count as by another.

/// What does not add up, one line each; empty where everything does. `equal` holds two counts of
/// the same packets and what each counts; `incomplete` of `epochs` epochs are not complete.
pub(crate) fn complaints(
    equal: &[(&str, u64, &str, u64)],
    incomplete: usize,
    epochs: usize,
) -> Vec<String> {
    let mut complaints: Vec<String> = equal
        .iter()
        .filter(|(_, a, _, b)| a != b)
        .map(|(what, a, other, b)| format!("{a} packets {what}, but {b} {other}"))
        .collect();
    // A few are the price of too few CPUs; where most are, nothing has been shown.
    if incomplete * 2 > epochs {
        complaints.push(format!(
            "{incomplete} of {epochs} epochs are incomplete, so there is little to go by: is the machine overloaded?"
        ));
    }
    complaints
}
