//! What became of INT stacks in a live fabric, and of hosts' packets.

use serde::Serialize;

/// What captures say of hosts' packets, and what became of stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stacks {
    /// Windows of which the report is complete, and was held against captures.
    pub windows: usize,
    /// Packets that hosts sent, and that came to hosts.
    pub moved: [u64; 2],
    /// Packets that came to hosts with a stack.
    pub leaked: u64,
    /// Packets that came to hosts with other bytes than they were sent with.
    pub changed: u64,
    /// What became of the stacks; none where a switch was started anew or counts nothing, so that
    /// nobody knows of all of them.
    pub balance: Option<Balance>,
}

/// Stacks by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// Packets that sources put a stack into, and copies that routers made of such.
    pub inserted: u64,
    /// Those whose stack a switch has taken out.
    pub taken_out: u64,
    /// Those that a switch has dropped for their stack.
    pub dropped: u64,
    /// Those that routers have lost on purpose.
    pub lost: u64,
}

impl Balance {
    /// Stacks of which something became.
    pub fn accounted(&self) -> u64 {
        self.taken_out + self.dropped + self.lost
    }

    /// Whether some are missing, and no more than there were packets lost beside the log.
    pub(crate) fn may_lack(&self, unlogged: u64) -> bool {
        let lacking = self.inserted.saturating_sub(self.accounted());
        (1..=unlogged).contains(&lacking)
    }
}

impl Stacks {
    /// In words.
    pub fn in_words(&self) -> String {
        let Self { windows, moved: [sent, came], leaked, changed, .. } = self;
        let balance = self.balance.map(|of| {
            let Balance { inserted, taken_out, dropped, lost } = of;
            format!(
                "{inserted} packets got stacks: {taken_out} were taken out, {dropped} dropped and \
                 {lost} lost by routers; "
            )
        });
        format!(
            "{}of {sent} packets that hosts sent {came} came to hosts, {leaked} with a stack and \
             {changed} changed; {windows} complete windows held against captures",
            balance.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_lost_beside_the_log_excuse_as_many_stacks() {
        let balance = |inserted| Balance { inserted, taken_out: 7, dropped: 1, lost: 2 };
        let lacking = [9, 10, 11, 12, 13].map(|inserted| balance(inserted).may_lack(2));
        assert_eq!(lacking, [false, false, true, true, false]);
        assert!(!balance(11).may_lack(0));
    }
}
