//! What a program holds of memory and descriptors while a scenario is played, and whether that
//! stays within a bound.

use serde::Serialize;

/// Seconds that a program has to run before its growth is judged: until then histories fill up.
/// In ten minutes they are fewer from the first look at it to the last one.
const LEAST_SECONDS: f64 = 590.0;

/// How much more than in its second quarter a program may hold in its last: memory in kibibytes
/// and as a share, which is what allocators keep back, and descriptors.
const MORE_KIB: f64 = 2048.0;
const MORE_SHARE: f64 = 0.05;
const MORE_DESCRIPTORS: f64 = 4.0;

/// What a program held at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Held {
    /// Seconds since the scenario began.
    pub seconds: f64,
    /// Kibibytes of memory of its own.
    pub memory_kib: u64,
    /// Open file descriptors.
    pub descriptors: u64,
}

/// What one process of a program held, from its start to its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Usage {
    /// The program: `controller`, or a switch's name.
    pub program: String,
    /// Its process.
    pub process: u32,
    /// What it held, by time.
    pub held: Vec<Held>,
}

impl Usage {
    /// Seconds from the first to the last that is known of it.
    pub fn seconds(&self) -> f64 {
        let ends = self.held.first().zip(self.held.last());
        ends.map_or(0.0, |(first, last)| last.seconds - first.seconds)
    }

    /// Medians of memory in kibibytes and of descriptors in the second and in the last quarter of
    /// its time; `None` where it ran for less than ten minutes.
    pub fn quarters(&self) -> Option<[[f64; 2]; 2]> {
        let (first, seconds) = (self.held.first()?.seconds, self.seconds());
        if seconds < LEAST_SECONDS {
            return None;
        }
        let quarter = |number: f64| {
            let from = first + seconds * number / 4.0;
            let within = |held: &&Held| (from..=from + seconds / 4.0).contains(&held.seconds);
            let of = |value: fn(&Held) -> u64| {
                let mut values: Vec<u64> = self.held.iter().filter(within).map(value).collect();
                values.sort_unstable();
                values.get(values.len() / 2).copied().unwrap_or_default() as f64
            };
            [of(|held| held.memory_kib), of(|held| held.descriptors)]
        };
        Some([quarter(1.0), quarter(3.0)])
    }

    /// What of it has grown beyond the bound, in words; `None` where nothing has.
    pub fn growth(&self) -> Option<String> {
        let [[memory, descriptors], [later_memory, later_descriptors]] = self.quarters()?;
        let program = &self.program;
        if later_memory > memory * (1.0 + MORE_SHARE) + MORE_KIB {
            return Some(format!(
                "{program}: {later_memory} KiB of memory in the last quarter, {memory} in the second"
            ));
        }
        (later_descriptors > descriptors + MORE_DESCRIPTORS).then(|| {
            format!(
                "{program}: {later_descriptors} descriptors in the last quarter, {descriptors} in \
                 the second"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that holds so much at each second.
    fn program(seconds: u64, held: impl Fn(u64) -> (u64, u64)) -> Usage {
        let at = |second| {
            let (memory_kib, descriptors) = held(second);
            Held { seconds: 5.0 + second as f64, memory_kib, descriptors }
        };
        Usage { program: "e1".to_owned(), process: 7, held: (0..=seconds).map(at).collect() }
    }

    #[test]
    fn a_program_that_grows_for_long_is_named_and_one_that_fills_up_at_first_is_not() {
        assert_eq!(program(1000, |_| (9_000, 14)).growth(), None);
        // A history that is full after a while, and peaks now and then.
        let fills = |second: u64| {
            (9_000 + 40 * second.min(200), 14 + 30 * u64::from(second.is_multiple_of(9)))
        };
        assert_eq!(program(1000, fills).growth(), None);
        let leaks = program(1000, |second| (9_000 + 10 * second, 14)).growth().unwrap();
        assert!(leaks.starts_with("e1: ") && leaks.contains("memory"), "{leaks}");
        let opens = program(1000, |second| (9_000, 14 + second / 100)).growth().unwrap();
        assert!(opens.starts_with("e1: ") && opens.contains("descriptors"), "{opens}");
        // Too short to tell.
        assert_eq!(program(100, |second| (9_000 + 1000 * second, 14)).growth(), None);
    }
}
