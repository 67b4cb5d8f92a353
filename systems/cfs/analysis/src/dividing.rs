//! Which share of their memory the tables of all switches have: what the file or an operator says,
//! or what follows from how residuals fare.

use calumma_analysis::TableShare;
use calumma_cfs::frames::Setup;
use calumma_sketch::residual::Kind;

use crate::alpha::{Alpha, Fared};
use crate::coverage::Total;
use crate::view::NodeView;

/// Who says the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
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
    /// That of switches that measure by such a setup, moved by the rule or not.
    pub(crate) fn new(setup: Setup, moves: bool) -> Self {
        Self { setup, by: if moves { By::Rule } else { By::Setup }, rule: Alpha::default() }
    }

    /// What switches measure by.
    pub(crate) fn setup(&self) -> Setup {
        self.setup
    }

    /// What plans are to say, as [`calumma_cfs::frames::Plan::alpha`] has it.
    pub(crate) fn wanted(&self) -> u8 {
        match self.by {
            By::Setup => 0,
            By::Operator(alpha) => alpha,
            By::Rule => self.rule.hundredths(),
        }
    }

    /// What is wanted, for an operator; `None` where there is nothing to be shared.
    pub(crate) fn said(&self) -> Option<TableShare> {
        let fixed = |alpha| self.setup.share(alpha).map(TableShare::Fixed);
        match self.by {
            By::Setup => fixed(0),
            By::Operator(alpha) => fixed(alpha),
            By::Rule => Some(TableShare::Auto),
        }
    }

    /// Lets an operator say it. The rule goes on from the share that there is.
    ///
    /// # Errors
    /// That it can't be, and what it may be.
    pub(crate) fn say(&mut self, wanted: TableShare) -> Result<(), String> {
        if !self.setup.alpha_moves {
            let why = match self.setup.kind {
                Kind::FlowRadar => "[cfs] residual is flowradar, whose share does not move",
                Kind::Fermat => "there is no residual: [cfs] residual is none",
            };
            return Err(why.to_owned());
        }
        self.by = match wanted {
            TableShare::Auto => {
                if self.by != By::Rule {
                    let alpha = self.setup.share(self.wanted()).unwrap_or(0.9);
                    self.rule = Alpha::at((alpha * 100.0).round() as u8);
                }
                By::Rule
            }
            TableShare::Fixed(share) => {
                let (least, most) = (*Setup::ALPHA.start(), *Setup::ALPHA.end());
                let [least, most] = [least, most].map(|alpha| f64::from(alpha) / 100.0);
                if !(least..=most).contains(&share) {
                    return Err(format!("alpha = {share}: must be {least} to {most}, or auto"));
                }
                By::Operator((share * 100.0).round() as u8)
            }
        };
        Ok(())
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

    fn dividing(moves: bool) -> Dividing {
        let setup = Setup { residual: Some(1024), alpha_moves: true, ..Setup::default() };
        Dividing::new(setup, moves)
    }

    #[test]
    fn an_operator_says_a_share_or_that_it_moves() {
        let mut it = dividing(false);
        assert_eq!(it.wanted(), 0);
        assert!(
            matches!(it.said(), Some(TableShare::Fixed(share)) if (share - 0.889).abs() < 1e-3)
        );
        it.say(TableShare::Fixed(0.75)).unwrap();
        assert_eq!((it.wanted(), it.said()), (75, Some(TableShare::Fixed(0.75))));
        for share in [0.59, 0.98, f64::NAN] {
            let refused = it.say(TableShare::Fixed(share)).unwrap_err();
            assert!(refused.ends_with("must be 0.6 to 0.97, or auto"), "{refused}");
        }
        it.say(TableShare::Auto).unwrap();
        assert_eq!((it.wanted(), it.said()), (75, Some(TableShare::Auto)), "it goes on from there");
        let mut none = Dividing::new(Setup::default(), false);
        assert!(none.say(TableShare::Auto).unwrap_err().contains("no residual"));
        assert_eq!((none.wanted(), none.said()), (0, None));
        let setup = Setup { residual: Some(1024), kind: Kind::FlowRadar, ..Setup::default() };
        let mut radar = Dividing::new(setup, false);
        assert!(radar.say(TableShare::Fixed(0.8)).unwrap_err().ends_with("does not move"));
        assert!(
            matches!(radar.said(), Some(TableShare::Fixed(share)) if (share - 0.870).abs() < 1e-3)
        );
    }

    #[test]
    fn the_rule_learns_from_windows_of_its_own_share() {
        let mut it = dividing(true);
        let crowded = Fared { decoded: false, flows: 200.0, counted: 90.0, in_tables: 90.0 };
        for alpha in [0, 97].into_iter().cycle().take(100) {
            it.learn(alpha, crowded);
        }
        assert_eq!(it.wanted(), 90);
        (0..8).for_each(|_| it.learn(90, crowded));
        assert_eq!(it.wanted(), 97);
        it.take_over(70);
        assert_eq!(it.wanted(), 97, "it is on its way already");
        let mut new = dividing(true);
        new.take_over(70);
        assert_eq!(new.wanted(), 70);
        let mut fixed = dividing(false);
        fixed.take_over(70);
        fixed.learn(0, crowded);
        assert_eq!(fixed.wanted(), 0);
    }
}
