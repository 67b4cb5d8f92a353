//! A limit on how often something is done: a bucket of tokens that fills with time.

/// Lets so much be done a second, and a tenth of that at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    a_second: u64,
    /// Billionths of a token.
    tokens: u64,
    filled_ns: u64,
}

const TOKEN: u64 = 1_000_000_000;

impl Limit {
    /// A limit with a full bucket.
    pub(super) fn new(a_second: u32, now_ns: u64) -> Self {
        let mut limit = Self { a_second: a_second.into(), tokens: 0, filled_ns: now_ns };
        limit.tokens = limit.most();
        limit
    }

    fn most(&self) -> u64 {
        if self.a_second == 0 { 0 } else { (self.a_second / 10).max(1) * TOKEN }
    }

    /// Whether it may be done once more at `now_ns`.
    pub(super) fn allows(&mut self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns = self.filled_ns.max(now_ns);
        self.tokens =
            self.tokens.saturating_add(passed_ns.saturating_mul(self.a_second)).min(self.most());
        let allowed = self.tokens >= TOKEN;
        self.tokens -= if allowed { TOKEN } else { 0 };
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_at_once_and_no_more_than_the_rate_afterwards() {
        let mut limit = Limit::new(100, 0);
        assert_eq!((0..1000).filter(|_| limit.allows(0)).count(), 10);
        let in_ten_seconds = (0..100_000_u64).filter(|ms| limit.allows(ms * 100_000)).count();
        assert!((990..=1000).contains(&in_ten_seconds), "{in_ten_seconds}");
        let mut never = Limit::new(0, 0);
        assert!(!never.allows(u64::MAX));
    }
}
