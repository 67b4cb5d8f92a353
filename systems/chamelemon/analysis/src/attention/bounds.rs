//! What the operator allows the planner to do.

use calumma_chamelemon::{Layout, Partition};

/// Limits on the planner's choices, in buckets an array and packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Least buckets of the HH encoder.
    pub min_hh: u32,
    /// Least buckets of the HL encoder: the paper's reserve for small bursts of victim flows.
    pub min_hl: u32,
    /// Least buckets of the LL encoder in the ill state.
    pub min_ll: u32,
    /// T_h, where the operator fixes it.
    pub fixed_t_h: Option<u32>,
}

/// The paper keeps 512 buckets of its 4096 for the HL encoder.
const RESERVE: u32 = 8;

/// The paper's LL encoder has 512 of the 3072 buckets that HL and LL share in the ill state.
const LL_SHARE: u32 = 6;

impl Bounds {
    /// The paper's, on its layout; on others in proportion.
    pub fn of(layout: &Layout) -> Self {
        let reserve = (layout.upstream_buckets / RESERVE).max(1);
        let least = reserve.min((layout.downstream_buckets / 2).max(1));
        Self { min_hh: reserve, min_hl: least, min_ll: 1, fixed_t_h: None }
    }

    /// Checks them against the memory of the switches.
    ///
    /// # Errors
    /// Names the values, the rule they break and the remedy.
    pub fn check(&self, layout: &Layout) -> Result<(), String> {
        let Self { min_hh, min_hl, min_ll, fixed_t_h } = *self;
        if min_hh == 0 || min_hl == 0 || min_ll == 0 {
            return Err(
                "min_hh_buckets, min_hl_buckets and min_ll_buckets must be at least 1".to_owned()
            );
        }
        if fixed_t_h == Some(0) {
            return Err("fixed_t_h = 0: at least 1; leave it out to let it be chosen".to_owned());
        }
        let (upstream, downstream) = (layout.upstream_buckets, layout.downstream_buckets);
        let least = u64::from(min_hh) + u64::from(min_hl);
        if least > u64::from(upstream) {
            return Err(format!(
                "min_hh_buckets = {min_hh} and min_hl_buckets = {min_hl} exceed upstream_buckets = {upstream}: \
                 lower one of the former or raise the latter"
            ));
        }
        if min_hl > downstream {
            return Err(format!(
                "min_hl_buckets = {min_hl} exceeds downstream_buckets = {downstream}: lower the former or \
                 raise the latter"
            ));
        }
        Ok(())
    }

    /// Most buckets an array that loss encoders can have.
    pub(super) fn most_for_losses(&self, layout: &Layout) -> u32 {
        layout.downstream_buckets.min(layout.upstream_buckets - self.min_hh)
    }

    /// A healthy network's division of memory with `hl` buckets for losses, or as near as allowed.
    pub(super) fn healthy(&self, layout: &Layout, hl: u32) -> Partition {
        let hl = hl.max(self.min_hl).min(self.most_for_losses(layout));
        Partition { hh: layout.upstream_buckets - hl, hl, ll: 0 }
    }

    /// An ill network's division of memory (section 4.3.2): all that the downstream encoder has
    /// goes to losses, in the paper's proportions. `None` where the memory or a fixed T_h of 1
    /// leaves no room for an LL encoder.
    pub(super) fn ill(&self, layout: &Layout) -> Option<Partition> {
        let losses = self.most_for_losses(layout);
        let ll = (losses / LL_SHARE).max(self.min_ll);
        let hl = losses.checked_sub(ll).filter(|&hl| hl >= self.min_hl)?;
        let hh = layout.upstream_buckets - losses;
        (self.fixed_t_h != Some(1)).then_some(Partition { hh, hl, ll })
    }

    /// A division of memory one bucket apart from `partition`, in which every flow of the HH and
    /// the HL encoder falls into other buckets. `None` where there is no room for one.
    pub(super) fn beside(&self, layout: &Layout, partition: Partition) -> Option<Partition> {
        let Partition { hh, hl, ll } = partition;
        if hl > self.min_hl {
            return Some(Partition { hh: hh + 1, hl: hl - 1, ll });
        }
        let room = hh > self.min_hh && hl + ll < self.most_for_losses(layout);
        room.then(|| Partition { hh: hh - 1, hl: hl + 1, ll })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_layout_is_divided_as_the_paper_divides_it() {
        let layout = Layout::default();
        let bounds = Bounds::of(&layout);
        assert_eq!(bounds.check(&layout), Ok(()));
        assert_eq!(bounds.healthy(&layout, 0), Partition { hh: 3584, hl: 512, ll: 0 });
        assert_eq!(bounds.healthy(&layout, 9999), Partition { hh: 1024, hl: 3072, ll: 0 });
        assert_eq!(bounds.ill(&layout), Some(Partition { hh: 1024, hl: 2560, ll: 512 }));
    }

    #[test]
    fn beside_a_division_lies_another_within_the_bounds() {
        let layout = Layout::default();
        let bounds = Bounds::of(&layout);
        for hl in [512, 513, 3072] {
            let beside = bounds.beside(&layout, bounds.healthy(&layout, hl)).unwrap();
            assert_eq!(beside, bounds.healthy(&layout, beside.hl));
            assert_eq!(beside.hl.abs_diff(hl), 1);
        }
        let ill = bounds.ill(&layout).unwrap();
        let other = Partition { hh: 1025, hl: 2559, ll: 512 };
        assert_eq!(bounds.beside(&layout, ill), Some(other));
        let tight = Bounds { min_hh: 3584, ..bounds };
        assert_eq!(tight.beside(&layout, tight.healthy(&layout, 512)), None);
    }

    #[test]
    fn bounds_that_leave_no_room_say_which_and_what_to_do() {
        let layout = Layout::default();
        let bounds = Bounds { min_hh: 4000, ..Bounds::of(&layout) };
        let problem = bounds.check(&layout).unwrap_err();
        assert!(problem.contains("min_hh_buckets = 4000 and min_hl_buckets = 512"), "{problem}");
        let bounds = Bounds { fixed_t_h: Some(1), ..Bounds::of(&layout) };
        assert_eq!(bounds.ill(&layout), None, "T_l would have to be above T_h");
    }
}
