//! Which share of their memory the tables of all switches have: what the file or an operator says,
//! or what follows from how residuals fare.

use calumma_cfs::frames::{Setup, Window};
use calumma_sketch::residual::Kind;

use crate::alpha::{Alpha, Fared};
use crate::coverage::Total;
use crate::view::NodeView;

/// Who says the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The setup: what the file says.
    Setup,
    /// An operator: so many hundredths.
    Operator(u8),
    /// The rule.
    Rule,
}

/// The share, and how it comes about.
#[derive(Clone, Debug)]
pub(crate) struct Dividing {
    setup: Setup,
    by: By,
    rule: Alpha,
}

impl Dividing {
    /// That of switches that measure by such a setup.
    pub(crate) fn new(setup: Setup, by: By) -> Self {
        Self { setup, by, rule: Alpha::default() }
    }

    /// What plans are to say, as [`calumma_cfs::frames::Plan::alpha`] has it.
    pub(crate) fn wanted(&self) -> u8 {
        match self.by {
            By::Setup => 0,
            By::Operator(alpha) => alpha,
            By::Rule => self.rule.hundredths(),
        }
    }

    /// Who says it.
    pub(crate) fn by(&self) -> By {
        self.by
    }

    /// Lets somebody else say it, of switches that measure by `setup` from now on. The rule goes on
    /// from the share that there is.
    pub(crate) fn say(&mut self, setup: Setup, by: By) {
        if by == By::Rule && self.by != By::Rule {
            let alpha = self.setup.share(self.wanted()).unwrap_or(0.9);
            self.rule = Alpha::at((alpha * 100.0).round() as u8);
        }
        (self.setup, self.by) = (setup, by);
    }

    /// Takes over the share that a switch holds by the plan of a controller before this one.
    pub(crate) fn take_over(&mut self, alpha: u8) {
        if self.by == By::Rule && self.rule == Alpha::default() && alpha != 0 {
            self.rule = Alpha::at(alpha);
        }
    }

    /// Takes the outcome of a window in which all tables had so many hundredths.
    pub(crate) fn learn(&mut self, alpha: u8, fared: Fared) {
        if self.by == By::Rule && alpha == self.rule.hundredths() {
            self.rule.learn(fared);
        }
    }
}

/// The share that all tables of these nodes had for which plans say it; `None` where they differ.
/// That of the setup where no plan may say another.
pub(crate) fn common(setup: &Setup, nodes: &[NodeView<'_>]) -> Option<u8> {
    if setup.kind == Kind::FlowRadar {
        return Some(0);
    }
    let mut all = nodes.iter().filter_map(|node| node.window.alpha);
    let first = all.next()?;
    all.all(|alpha| alpha == first).then_some(first)
}

/// The share that a node's table had; `None` where there is no residual.
pub(crate) fn share_of(setup: &Setup, node: &NodeView<'_>) -> Option<f64> {
    let Window { alpha, overrides, .. } = node.window;
    setup.with(overrides.unwrap_or_default()).share(alpha.unwrap_or(0))
}

/// The share that all tables had, as [`common`] has it.
pub(crate) fn share(setup: &Setup, nodes: &[NodeView<'_>]) -> Option<f64> {
    common(setup, nodes)?;
    let is_radar = setup.kind == Kind::FlowRadar;
    let divided = nodes.iter().filter(|node| is_radar || node.window.alpha.is_some());
    let mut all = divided.map(|node| share_of(setup, node));
    let first = all.next()??;
    all.all(|share| share == Some(first)).then_some(first)
}

/// How the residuals of a window fared that all nodes delivered, those that plans divide the memory
/// of. So many flows of the network have a count, and so many of them in residuals alone. `None`
/// where it is not known how many there were.
pub(crate) fn fared(
    nodes: &[NodeView<'_>],
    total: Option<Total>,
    (counted, only_decoded): (u64, u64),
) -> Option<Fared> {
    let mut divided = nodes.iter().filter(|node| node.window.alpha.is_some());
    let decoded = divided.all(|node| node.residual.is_none_or(|of| of.counts.is_some()));
    let [counted, in_tables] = [counted, counted - only_decoded].map(|flows| flows as f64);
    // An estimate may be less than what is there.
    Some(Fared { decoded, flows: total?.flows.max(counted), counted, in_tables })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        Setup { residual: Some(1024), alpha_moves: true, ..Setup::default() }
    }

    fn dividing(by: By) -> Dividing {
        Dividing::new(setup(), by)
    }

    #[test]
    fn the_rule_goes_on_from_the_share_that_there_is() {
        let mut it = dividing(By::Setup);
        assert_eq!((it.wanted(), it.by()), (0, By::Setup));
        it.say(setup(), By::Operator(75));
        assert_eq!((it.wanted(), it.by()), (75, By::Operator(75)));
        it.say(setup(), By::Rule);
        assert_eq!((it.wanted(), it.by()), (75, By::Rule));
        it.say(setup(), By::Setup);
        it.say(setup(), By::Rule);
        assert_eq!(it.wanted(), 89, "of 16,384 entries of 60 bytes and 1,024 buckets of 120");
    }

    #[test]
    fn the_rule_learns_from_windows_of_its_own_share() {
        let mut it = dividing(By::Rule);
        let crowded = Fared { decoded: false, flows: 200.0, counted: 90.0, in_tables: 90.0 };
        for alpha in [0, 97].into_iter().cycle().take(100) {
            it.learn(alpha, crowded);
        }
        assert_eq!(it.wanted(), 90);
        (0..8).for_each(|_| it.learn(90, crowded));
        assert_eq!(it.wanted(), 97);
        it.take_over(70);
        assert_eq!(it.wanted(), 97, "it is on its way already");
        let mut new = dividing(By::Rule);
        new.take_over(70);
        assert_eq!(new.wanted(), 70);
        let mut fixed = dividing(By::Setup);
        fixed.take_over(70);
        fixed.learn(0, crowded);
        assert_eq!(fixed.wanted(), 0);
    }
}
