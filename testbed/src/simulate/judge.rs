//! Whether a report says what really happened.
//!
//! Nothing here knows how losses are found. A packet is lost where nothing of it arrived, neither
//! itself nor a copy, under whatever mark, address or delay; a report that claims to be certain
//! must not say so of any other, and must say so of every one that it can know of.

use std::collections::{HashMap, HashSet};

use calumma_controller::report::{Amendment, Change, EdgeReport, EpochReport, Flow, LossClass};
use calumma_sketch::WideKey;
use serde::Serialize;

use super::truth::{EpochTruth, FlowTruth, Sent};

/// What a report claims and is not so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Wrong {
    /// The flow that it is about, where it is about one.
    pub flow: Option<Flow>,
    /// Packets that it claims were lost, and that were not.
    pub false_lost: u64,
    /// The claim and the truth, in words.
    pub words: String,
}

/// What was found about a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What it claims and is not so.
    pub wrong: Vec<Wrong>,
    /// Packets that it claims were lost and that were not, and that later reports have amended.
    pub amended: u64,
    /// Packets that were really lost of each flow that it names.
    missing: HashMap<Flow, u64>,
    /// Packets that were lost, and that it does not know of since the network put others of the
    /// same flow in their place. Of a report that does not claim to be certain, 0.
    pub hidden: u64,
}

impl Judgement {
    /// Packets that the report claims were lost, and that were not.
    pub fn false_lost(&self) -> u64 {
        self.wrong.iter().map(|wrong| wrong.false_lost).sum()
    }

    /// A later report says what this one's report should have said of a flow.
    pub fn amend(&mut self, amendment: &Amendment) {
        let flow = amendment.flow;
        let missing = self.missing.get(&flow).copied().unwrap_or(0);
        if amendment.lost > missing || (amendment.late.is_some() && amendment.lost < missing) {
            let words = format!("{amendment:?}, but {missing} were lost");
            self.add(flow, amendment.lost.saturating_sub(missing), words);
            return;
        }
        let about = |wrong: &Wrong| wrong.flow == Some(flow);
        let of_flow = self.wrong.iter().filter(|wrong| about(wrong));
        self.amended += of_flow.map(|wrong| wrong.false_lost).sum::<u64>();
        self.wrong.retain(|wrong| !about(wrong));
    }

    fn add(&mut self, flow: Flow, false_lost: u64, words: String) {
        self.wrong.push(Wrong { flow: Some(flow), false_lost, words });
    }
}

impl EpochTruth {
    /// What is wrong with a report that claims to be certain; nothing where it claims less.
    ///
    /// See [`judge`](Self::judge).
    pub fn contradicts(&self, report: &EpochReport) -> Option<String> {
        self.judge(report).wrong.into_iter().next().map(|wrong| wrong.words)
    }

    /// Holds a report against the truth, as far as it claims to be certain.
    ///
    /// * It must count every packet that entered, edge by edge, where all flows are listed; the
    ///   size of each heavy hitter must lie between its bounds, no flow above the threshold may be
    ///   missing where all are listed, and as many flows have entered as it says without an error.
    /// * The same of heavy changes, of which both sizes must lie between their bounds.
    /// * Where the encoders came out complete, no flow may be said to have lost more packets than
    ///   are missing, of those that carried an encoding.
    /// * Of flows that links did no more to than lose and copy packets, it must say exactly how
    ///   many more entered than left, or how many more left, by heavy-loss candidates and others.
    /// * Every packet of such a flow that was lost after it had reached T_l must be among them.
    /// * A flow reported to have left with more packets than entered must have had such packets:
    ///   copies, strangers, or packets that links held up, re-marked or translated. Where the
    ///   number is `partial`, there may have been more.
    ///
    /// * Packets of flows that it can't tell apart must be as many as those that flows which it
    ///   does not name have lost more than were copied.
    ///
    /// Of encoders that did not come out complete, what a report says all the same must hold as
    /// well.
    pub fn judge(&self, report: &EpochReport) -> Judgement {
        let mut judgement = Judgement::default();
        if !report.complete {
            return judgement;
        }
        let counted: u64 = report.edges.iter().filter_map(|edge| edge.packets_in).sum();
        if self.entered.is_none() && counted != self.packets() {
            let entered = self.packets();
            let words = format!("{counted} packets counted, {entered} entered");
            judgement.wrong.push(Wrong { flow: None, false_lost: 0, words });
        }
        if self.entered.is_none() {
            for (at, edge) in report.edges.iter().enumerate() {
                self.judge_edge((at, edge), &mut judgement);
            }
        }
        self.judge_losses(report, &mut judgement);
        judgement
    }

    /// Holds what a report says of flow sizes at the edge at a position against what entered there.
    fn judge_edge(&self, (at, report): (usize, &EdgeReport), judgement: &mut Judgement) {
        let mut wrong = |words| judgement.wrong.push(Wrong { flow: None, false_lost: 0, words });
        let name = &report.edge;
        let flows = self.flows.iter().filter(|flow| flow.edge as usize == at);
        let sizes = sizes_of(flows.map(|flow| (&flow.key, flow.packets)));
        let entered: u64 = sizes.values().sum();
        if report.packets_in.is_some_and(|packets| packets != entered) {
            wrong(format!("{name}: {:?} packets entered, not {entered}", report.packets_in));
        }
        if let (Some(flows), Some(0.0)) = (report.cardinality, report.cardinality_error)
            && flows != sizes.len() as f64
        {
            wrong(format!("{name}: {flows} flows entered, not {}", sizes.len()));
        }
        let size_of = |flow: &Flow| sizes.get(flow).copied().unwrap_or(0);
        for hitter in &report.heavy_hitters {
            let size = size_of(&hitter.flow);
            if !(hitter.size_min.unwrap_or(hitter.size)..=hitter.size).contains(&size) {
                wrong(format!("{name}: {hitter:?}, but {size} packets entered"));
            }
        }
        if let Some(tasks) = self.tasks.filter(|_| report.heavy_hitters_complete) {
            let listed = report.heavy_hitters.iter().map(|hitter| hitter.flow);
            let listed: HashSet<Flow> = listed.collect();
            let is_large = |size: u64| size > tasks.heavy_hitter;
            for (flow, size) in
                sizes.iter().filter(|&(flow, &size)| is_large(size) && !listed.contains(flow))
            {
                wrong(format!("{name}: {flow} with {size} packets is no heavy hitter"));
            }
        }
        for words in self.judge_changes((at, report), &sizes) {
            wrong(format!("{name}: {words}"));
        }
    }

    /// What it says of heavy changes there and is not so; `sizes` are those of what entered.
    fn judge_changes(
        &self,
        (at, report): (usize, &EdgeReport),
        sizes: &HashMap<Flow, u64>,
    ) -> Vec<String> {
        if report.heavy_changes_since.is_none() {
            let (changes, are_all) = (report.heavy_changes.len(), report.heavy_changes_complete);
            let is_wrong = changes > 0 || are_all;
            let words = || format!("{changes} heavy changes, all: {are_all}, since no epoch");
            return is_wrong.then(words).into_iter().collect();
        }
        let Some(before) = &self.before else { return Vec::new() };
        let before = before.iter().filter(|sent| sent.edge as usize == at);
        let before = sizes_of(before.map(|Sent { key, packets, .. }| (key, *packets)));
        let size = |of: &HashMap<Flow, u64>, flow: &Flow| of.get(flow).copied().unwrap_or(0);
        let of = |flow: &Flow| [size(&before, flow), size(sizes, flow)];
        let mut wrong = Vec::new();
        for change in &report.heavy_changes {
            let least = [
                change.before_min.unwrap_or(change.before),
                change.after_min.unwrap_or(change.after),
            ];
            let most = [change.before, change.after];
            let truth = of(&change.flow);
            if (0..2).any(|at| !(least[at]..=most[at]).contains(&truth[at])) {
                wrong.push(format!("{change:?}, but {truth:?} packets entered"));
            }
        }
        if let Some(tasks) = self.tasks.filter(|_| report.heavy_changes_complete) {
            let listed = report.heavy_changes.iter().map(|change| change.flow);
            let listed: HashSet<Flow> = listed.collect();
            let gone = before.keys().filter(|flow| !sizes.contains_key(flow));
            for flow in sizes.keys().chain(gone).filter(|flow| !listed.contains(flow)) {
                let [before, after] = of(flow);
                if before.abs_diff(after) > tasks.heavy_change {
                    wrong.push(format!("{flow} from {before} to {after} is no heavy change"));
                }
            }
        }
        wrong
    }

    fn judge_losses(&self, report: &EpochReport, judgement: &mut Judgement) {
        let mut flows: HashMap<WideKey, Expected> = HashMap::new();
        for flow in self.flows.iter().filter(|flow| flow.lost + flow.doubled > 0) {
            flows.entry(flow.key).or_default().add(flow, report.config.t_l);
        }
        for loss in report.loss.iter().filter(|loss| !loss.partial) {
            let (flow, lost) = (loss.flow, loss.lost);
            let truth = self.of(&mut flows, &flow);
            truth.claimed += lost;
            let missing = truth.missing();
            judgement.missing.insert(flow, missing);
            let false_lost = lost.saturating_sub(missing);
            if false_lost > 0 {
                let words = format!("{flow} lost {missing}, and is said to have lost {lost}");
                judgement.add(flow, false_lost, words);
            } else if !truth.is_disturbed {
                let class = if truth.heavy > 0 { LossClass::Heavy } else { LossClass::Light };
                truth.is_bounded |= loss.at_least;
                if !loss.at_least && (lost != truth.lost() || loss.class != class) {
                    judgement.add(flow, 0, format!("{loss:?}, but in truth {truth:?}"));
                }
            }
        }
        for surplus in &report.surplus {
            let truth = self.of(&mut flows, &surplus.flow);
            truth.claimed_surplus += surplus.packets;
            truth.is_bounded |= surplus.partial;
            if surplus.partial && !report.losses_are_decoded() {
                continue;
            }
            if surplus.stranger && self.flows.iter().any(|of| Flow::from(&of.key) == surplus.flow) {
                judgement.add(surplus.flow, 0, format!("{} is no stranger", surplus.flow));
            }
            let too_many = surplus.packets > truth.copies + truth.disturbed;
            let is_exact = !truth.is_disturbed && !surplus.partial;
            if too_many || (is_exact && surplus.packets != truth.surplus()) {
                judgement.add(surplus.flow, 0, format!("{surplus:?}, but in truth {truth:?}"));
            }
        }
        for rewritten in &report.rewritten {
            for flow in [Some(rewritten.from), rewritten.to].into_iter().flatten() {
                self.of(&mut flows, &flow).is_bounded = true;
            }
            let truth = self.of(&mut flows, &rewritten.from);
            truth.rewritten += rewritten.packets;
            let from = self.flows.iter().filter(|of| Flow::from(&of.key) == rewritten.from);
            let entered: u64 = from.map(|of| u64::from(of.packets)).sum();
            // What may be of another epoch need not have entered in this one.
            let is_bounded = self.entered.is_none() && rewritten.what != Change::Epoch;
            if is_bounded && rewritten.packets > entered {
                judgement.add(rewritten.from, 0, format!("{rewritten:?}, of {entered}"));
            }
        }
        if !report.losses_are_decoded() {
            return;
        }
        // What flows have lost that are not named, where they may be those that can't be told
        // apart.
        let mut unnamed = 0;
        for (key, truth) in &mut flows {
            truth.disturb(self.disturbed.get(key).copied());
            judgement.hidden += truth.missing().saturating_sub(truth.claimed);
            // Where there are causes, every loss is a bound, and small ones are not known.
            if truth.is_disturbed || !report.causes.is_empty() {
                continue;
            }
            let flow = Flow::from(key);
            if !report.indistinct.is_empty() && truth.is_unnamed() {
                unnamed += truth.heavy + truth.light;
                continue;
            }
            let accounted = truth.claimed + truth.rewritten;
            if truth.is_bounded && accounted >= truth.must_name() {
                // It claims no more than bounds, and they hold.
            } else if accounted < truth.must_name() {
                judgement.add(flow, 0, format!("{flow} was left out: {truth:?}"));
            } else if (truth.claimed, truth.claimed_surplus) != (truth.lost(), truth.surplus()) {
                let (lost, more) = (truth.claimed, truth.claimed_surplus);
                let words = format!("{flow}: {lost} lost, {more} too many, of {truth:?}");
                judgement.add(flow, 0, words);
            }
        }
        let sets: i64 = report.indistinct.iter().map(|set| set.packets).sum();
        let is_judged = self.disturbed.is_empty() && report.causes.is_empty();
        if is_judged && !report.indistinct.is_empty() && sets != unnamed {
            let words = format!("{sets} packets of flows that can't be told apart, not {unnamed}");
            judgement.wrong.push(Wrong { flow: None, false_lost: 0, words });
        }
    }

    /// What a report must say of a flow that it names.
    fn of<'a>(&self, flows: &'a mut HashMap<WideKey, Expected>, flow: &Flow) -> &'a mut Expected {
        // A flow of neither family is none that was sent.
        let nobody = || WideKey::v4([0; 4].into(), [0; 4].into(), 0, 0, 0);
        let key = flow.key().unwrap_or_else(nobody);
        let truth = flows.entry(key).or_default();
        truth.disturb(self.disturbed.get(&key).copied());
        truth
    }
}

/// The sizes of these flows, without those of no packets.
fn sizes_of<'a>(flows: impl Iterator<Item = (&'a WideKey, u32)>) -> HashMap<Flow, u64> {
    let mut sizes = HashMap::new();
    for (key, packets) in flows.filter(|(_, packets)| *packets > 0) {
        *sizes.entry(Flow::from(key)).or_default() += u64::from(packets);
    }
    sizes
}

/// What a report must say of a flow, and what it says.
#[derive(Debug, Default)]
struct Expected {
    /// Lost less doubled heavy-loss and heavy-hitter candidates.
    heavy: i64,
    /// The same of sampled light-loss candidates.
    light: i64,
    /// Packets lost past T_l, less those doubled; negative where more were doubled.
    past_t_l: i64,
    /// Packets of which nothing arrived, heavy ones and others.
    missing: [u64; 2],
    /// Copies that were made.
    copies: u64,
    /// Packets of it that may have left the network in this epoch though they entered in another
    /// one, as another flow, or nowhere.
    disturbed: u64,
    is_disturbed: bool,
    /// Whether the report gives bounds of it, and packets that it says may have been rewritten.
    is_bounded: bool,
    rewritten: u64,
    /// Losses and packets too many that the report has of it.
    claimed: u64,
    claimed_surplus: u64,
}

impl Expected {
    fn add(&mut self, flow: &FlowTruth, t_l: u32) {
        let light = |encoded: u32, heavy: u32| i64::from(encoded - heavy);
        self.heavy += i64::from(flow.heavy) - i64::from(flow.doubled_heavy);
        self.light += light(flow.encoded, flow.heavy);
        self.light -= light(flow.doubled_encoded, flow.doubled_heavy);
        // Two flows may have one key, and what one doubles makes up for what the other loses.
        self.past_t_l += i64::from(flow.lost_after(t_l - 1)) - i64::from(flow.doubled_encoded);
        self.copies += u64::from(flow.doubled_encoded);
        for (missing, of_flow) in self.missing.iter_mut().zip(flow.missing()) {
            *missing += u64::from(of_flow);
        }
    }

    fn disturb(&mut self, packets: Option<u64>) {
        self.disturbed = packets.unwrap_or(0);
        self.is_disturbed = packets.is_some();
    }

    /// Whether a report says nothing of it.
    fn is_unnamed(&self) -> bool {
        !self.is_bounded && self.claimed + self.claimed_surplus == 0
    }

    /// Losses past T_l that a report must name.
    fn must_name(&self) -> u64 {
        self.past_t_l.max(0) as u64
    }

    fn missing(&self) -> u64 {
        self.missing.iter().sum()
    }

    fn lost(&self) -> u64 {
        (self.heavy + self.light).max(0) as u64
    }

    fn surplus(&self) -> u64 {
        (-self.heavy - self.light).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_chamelemon::Run;
    use calumma_controller::analyse::Tasks;
    use calumma_controller::report::{HeavyChange, HeavyHitter, Loss, Surplus, sample};

    /// A report that claims to be certain, and of the flow with source port `port` that it lost or
    /// had too many packets.
    fn report(losses: &[(u16, u64)], surpluses: &[(u16, u64)]) -> EpochReport {
        let flow = |port: u16| Flow::from(&key(port));
        let class = LossClass::Heavy;
        let loss = |&(port, lost): &(u16, u64)| Loss {
            flow: flow(port),
            lost,
            class,
            partial: false,
            at_least: false,
        };
        let surplus = |&(port, packets): &(u16, u64)| Surplus {
            flow: flow(port),
            packets,
            partial: false,
            stranger: false,
        };
        let mut report = sample();
        report.config.t_l = 1;
        report.loss = losses.iter().map(loss).collect();
        report.surplus = surpluses.iter().map(surplus).collect();
        report.edges.clear();
        report
    }

    fn key(port: u16) -> WideKey {
        WideKey::v4([10, 0, 0, 1].into(), [10, 0, 1, 1].into(), port, 80, 17)
    }

    /// The truth of one flow, of which `lost` packets were lost and `copied` ones copied.
    fn truth(lost: u32, copied: u32) -> EpochTruth {
        let mut flow = FlowTruth::new(key(1), 0);
        let heavy = |packets| Run::new([0, 0, packets, 0]);
        flow.lose(&heavy(lost));
        flow.double(&heavy(copied));
        EpochTruth { flows: vec![flow], ..EpochTruth::default() }
    }

    #[test]
    fn exact_losses_are_the_truth_and_nothing_else() {
        let truth = truth(3, 0);
        let wrong = |losses: &[(u16, u64)]| truth.judge(&report(losses, &[])).wrong.len();
        assert_eq!(wrong(&[(1, 3)]), 0);
        assert!(wrong(&[(1, 2)]) > 0 && wrong(&[(1, 4)]) > 0 && wrong(&[]) > 0);
        assert!(wrong(&[(1, 3), (2, 1)]) > 0, "a flow that lost nothing");
        let judged = truth.judge(&report(&[(1, 4), (2, 5)], &[]));
        assert_eq!((judged.false_lost(), judged.hidden), (6, 0));
        let mut incomplete = report(&[(1, 9)], &[]);
        incomplete.complete = false;
        assert_eq!(truth.judge(&incomplete), Judgement::default());
    }

    #[test]
    fn sizes_at_an_edge_lie_between_their_bounds_and_none_is_missing() {
        let truth = sent(&[(1, 700), (2, 90), (3, 800)]);
        let judged = |change: &dyn Fn(&mut EdgeReport)| {
            let mut edge = sample().edges.remove(0);
            let hitter = |port, size, size_min| {
                let flow = Flow::from(&key(port));
                HeavyHitter { flow, size, size_min }
            };
            edge.packets_in = Some(1590);
            (edge.cardinality, edge.cardinality_error) = (Some(3.0), Some(0.0));
            edge.heavy_hitters = vec![hitter(3, 800, None), hitter(1, 710, Some(690))];
            (edge.heavy_changes_since, edge.heavy_changes) = (None, Vec::new());
            edge.heavy_changes_complete = false;
            change(&mut edge);
            let mut judgement = Judgement::default();
            truth.judge_edge((0, &edge), &mut judgement);
            judgement.wrong.len()
        };
        assert_eq!(judged(&|_| {}), 0);
        assert_eq!(judged(&|edge| edge.packets_in = Some(1591)), 1);
        assert_eq!(judged(&|edge| edge.cardinality = Some(2.0)), 1);
        assert_eq!(judged(&|edge| edge.heavy_hitters[1].size_min = None), 1);
        assert_eq!(judged(&|edge| edge.heavy_hitters.truncate(0)), 2);
        assert_eq!(judged(&|edge| edge.heavy_hitters.truncate(1)), 1, "one below all that are");
        assert_eq!(judged(&|edge| edge.heavy_hitters.rotate_left(1)), 0);
        assert_eq!(judged(&|edge| edge.heavy_hitters = vec![edge.heavy_hitters[1]]), 1);
        let lacks = |edge: &mut EdgeReport| {
            edge.heavy_hitters.remove(0);
            edge.heavy_hitters_complete = false;
        };
        assert_eq!(judged(&lacks), 0);
    }

    /// The truth of flows of as many packets, by source port, where 500 are many and a change by
    /// more than 250 is heavy.
    fn sent(flows: &[(u16, u32)]) -> EpochTruth {
        let flow = |&(port, packets): &(u16, u32)| {
            let mut flow = FlowTruth::new(key(port), 0);
            flow.packets = packets;
            flow
        };
        let tasks = Some(Tasks { heavy_hitter: 500, heavy_change: 250 });
        EpochTruth { flows: flows.iter().map(flow).collect(), tasks, ..EpochTruth::default() }
    }

    #[test]
    fn both_sizes_of_a_heavy_change_lie_between_their_bounds_and_no_change_is_missing() {
        let mut truth = sent(&[(1, 300), (2, 90), (3, 40)]);
        let sent = |port, packets| Sent { key: key(port), edge: 0, packets };
        truth.before = Some([sent(1, 49), sent(2, 340), sent(4, 251)].into());
        let change = |port, [before, after]: [u64; 2], before_min| {
            let flow = Flow::from(&key(port));
            HeavyChange { flow, before, before_min, after, after_min: None }
        };
        let judged = |of: &dyn Fn(&mut EdgeReport)| {
            let mut edge = sample().edges.remove(0);
            (edge.heavy_changes_since, edge.heavy_changes_complete) = (Some(11), true);
            let (new, gone) = (change(1, [50, 300], Some(49)), change(4, [251, 0], None));
            edge.heavy_changes = vec![new, gone];
            of(&mut edge);
            let sizes = sizes_of(truth.flows.iter().map(|flow| (&flow.key, flow.packets)));
            truth.judge_changes((0, &edge), &sizes).len()
        };
        assert_eq!(judged(&|_| {}), 0, "flow 2 changed by 250");
        assert_eq!(judged(&|edge| edge.heavy_changes.truncate(1)), 1, "a flow that is gone");
        assert_eq!(judged(&|edge| edge.heavy_changes = vec![edge.heavy_changes[1]]), 1);
        assert_eq!(judged(&|edge| edge.heavy_changes.clear()), 2);
        assert_eq!(judged(&|edge| edge.heavy_changes[0].before_min = None), 1);
        assert_eq!(judged(&|edge| edge.heavy_changes[0].after = 299), 1);
        assert_eq!(judged(&|edge| edge.heavy_changes[1].after = 1), 1);
        let lacks = |edge: &mut EdgeReport| {
            edge.heavy_changes.clear();
            edge.heavy_changes_complete = false;
        };
        assert_eq!(judged(&lacks), 0);
        assert_eq!(judged(&|edge| edge.heavy_changes_since = None), 1);
        let mut report = report(&[], &[]);
        report.edges = sample().edges;
        let of_edges = |truth: &EpochTruth| truth.judge(&report).wrong;
        let heavy = |wrong: &Wrong| wrong.words.contains("is no heavy change");
        assert!(of_edges(&truth).iter().any(heavy), "the whole report's changes are judged");
    }

    #[test]
    fn copies_hide_losses_and_the_judge_says_how_many() {
        let judged = truth(3, 1).judge(&report(&[(1, 2)], &[]));
        assert_eq!((judged.wrong.len(), judged.hidden), (0, 1));
        let judged = truth(3, 3).judge(&report(&[], &[]));
        assert_eq!((judged.wrong.len(), judged.hidden), (0, 3));
        assert_eq!(truth(1, 3).judge(&report(&[], &[(1, 2)])).wrong.len(), 0);
        assert!(!truth(1, 3).judge(&report(&[], &[(1, 3)])).wrong.is_empty());
    }

    #[test]
    fn what_was_disturbed_was_not_lost_but_may_be_too_much() {
        let mut truth = truth(1, 0);
        truth.disturbed = HashMap::from([(key(1), 5), (key(2), 4)]);
        let judge = |losses: &[(u16, u64)], surpluses: &[(u16, u64)]| {
            truth.judge(&report(losses, surpluses))
        };
        let right = judge(&[(1, 1)], &[(2, 4)]);
        assert_eq!((right.wrong.len(), right.hidden), (0, 0));
        assert_eq!(judge(&[(1, 3), (2, 2)], &[]).false_lost(), 4);
        assert!(!judge(&[(1, 1)], &[(2, 5)]).wrong.is_empty());
        assert!(!judge(&[(1, 1)], &[(3, 1)]).wrong.is_empty());
        let hidden = judge(&[], &[]);
        assert_eq!((hidden.wrong.len(), hidden.hidden), (0, 1));
    }
    #[test]
    fn an_amendment_takes_a_claim_back_and_is_judged_itself() {
        let amendment = |port: u16, lost, late| Amendment {
            epoch: 12,
            flow: Flow::from(&key(port)),
            was: 3,
            lost,
            late,
            at_most_late: None,
            why: String::new(),
        };
        let judged = || truth(1, 0).judge(&report(&[(1, 3), (2, 4)], &[]));
        assert_eq!(judged().false_lost(), 6);
        let mut amended = judged();
        amended.amend(&amendment(1, 1, Some(2)));
        assert_eq!((amended.false_lost(), amended.amended), (4, 2));
        for (lost, late) in [(2, None), (0, Some(3))] {
            let mut wrong = judged();
            wrong.amend(&amendment(1, lost, late));
            assert!(wrong.wrong.len() > judged().wrong.len(), "{lost} {late:?}");
        }
    }
}
