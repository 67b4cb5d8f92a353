//! Clocks that are set while switches measure by them.

/// How long a switch whose clock was set waits before it measures again. The controller compares
/// clocks several times in that time, so whatever it is sent afterwards it judges by the new time.
pub const RESTART_NS: u64 = 1_000_000_000;

/// Notices that a clock was set, by a second one that goes at the same rate and is never set.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepWatch {
    /// The clock less the steady one, when both were read last.
    apart_ns: Option<i128>,
}

impl StepWatch {
    /// Takes in readings of both clocks, in nanoseconds. Gives by how much the first one was set
    /// since the last call, but for what passed between the readings; negative where it was set
    /// back.
    #[inline]
    pub fn read(&mut self, clock_ns: u64, steady_ns: u64) -> i64 {
        let apart_ns = i128::from(clock_ns) - i128::from(steady_ns);
        let before = self.apart_ns.replace(apart_ns).unwrap_or(apart_ns);
        (apart_ns - before).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_shows_once_and_in_its_direction() {
        let mut watch = StepWatch::default();
        let steps = [(900, 0), (1000, 100), (5000, 200), (5100, 300), (10, 400), (u64::MAX, 500)];
        let shown = steps.map(|(clock_ns, steady_ns)| watch.read(clock_ns, steady_ns));
        assert_eq!(shown, [0, 0, 3900, 0, -5190, i64::MAX]);
    }
}
