//! Entropy of a flow size distribution.

/// Entropy of the flow sizes, in bits: -sum n_i (i / N) log2(i / N) over the sizes i, N = sum i n_i
/// being the number of packets (section 4.2 of the ChameleMon paper). It is that of the question to
/// which flow a packet belongs: 0 for a single flow, log2(n) for n equal ones.
///
/// `distribution` holds (size in packets, number of flows); the order does not matter. Gives 0 for
/// a distribution without packets.
pub fn entropy(distribution: &[(u64, f64)]) -> f64 {
    let packets: f64 = distribution.iter().map(|&(size, flows)| size as f64 * flows).sum();
    if packets <= 0.0 {
        return 0.0;
    }
    // -sum n i/N (log2 i - log2 N) = log2 N - sum n i log2 i / N.
    let weighted: f64 = distribution
        .iter()
        .filter(|&&(size, _)| size > 1)
        .map(|&(size, flows)| flows * size as f64 * (size as f64).log2())
        .sum();
    (packets.log2() - weighted / packets).max(0.0)
}

/// The same where the number of packets is known and so are the flows from `known_from` packets on:
/// smaller ones are taken to have, together, the packets that those leave.
pub(super) fn entropy_of_packets(
    distribution: &[(u64, f64)],
    known_from: u64,
    packets: u64,
) -> f64 {
    // Packets of some sizes, and what they weigh in the sum of the definition.
    let total = |known: bool| {
        let sizes = distribution.iter().filter(|&&(size, _)| (size >= known_from) == known);
        sizes.fold((0.0, 0.0), |(packets, weight), &(size, flows)| {
            let more = size as f64 * flows;
            (packets + more, weight + more * (size as f64).log2())
        })
    };
    let ((known, known_weight), (estimated, weight)) = (total(true), total(false));
    let all = (packets as f64).max(known);
    let scale = if estimated > 0.0 { (all - known) / estimated } else { 0.0 };
    if all <= 0.0 {
        return 0.0;
    }
    (all.log2() - (known_weight + scale * weight) / all).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_flows_have_the_logarithm_of_their_number() {
        assert_eq!(entropy(&[]), 0.0);
        assert_eq!(entropy(&[(1000, 1.0)]), 0.0);
        assert!((entropy(&[(1, 1024.0)]) - 10.0).abs() < 1e-12);
        assert!((entropy(&[(77, 1024.0)]) - 10.0).abs() < 1e-12);
    }

    #[test]
    fn unequal_flows_have_what_the_definition_says() {
        let by_definition =
            -(2.0 * (1.0 / 6.0) * (1.0_f64 / 6.0).log2() + (4.0 / 6.0) * (4.0_f64 / 6.0).log2());
        assert!((entropy(&[(1, 2.0), (4, 1.0)]) - by_definition).abs() < 1e-12);
    }
}
