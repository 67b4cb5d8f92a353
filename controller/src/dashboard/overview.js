// The window: numbers at the top, lanes over time, attention and what moved it, victim flows.

import { Lane } from './charts.js';
import { el, flowButton, nothing, replace, table } from './dom.js';
import { clock, count, digits, ms, percent, ratio, short } from './format.js';

/** Packets lost in an epoch, or lost at least. */
function lostIn(epoch) {
  return epoch.lost ?? epoch.lost_at_least;
}

/** Packets that entered in an epoch; null where an edge does not say. */
function enteredIn(epoch) {
  return epoch.edges.every((edge) => edge.packets_in != null) ? epoch.packets_in : null;
}

/** What can be said of an epoch in one word. */
export function stateOf(epoch) {
  if (!epoch.complete) return 'incomplete';
  return lostIn(epoch) == null ? 'undecoded' : epoch.state;
}

const STATES = {
  healthy: ['network healthy', 'All victim flows can be recorded.'],
  ill: ['network ill', 'Too many victim flows to record all: light losses are sampled.'],
};

/** The word for the whole network, in the header. */
export function badge(element, newest) {
  const [word, meaning] = newest ? STATES[newest.state] : ['no epoch yet', ''];
  if (element.textContent !== word) element.textContent = word;
  element.title = meaning;
  element.className = `badge ${newest?.state ?? ''}`;
}

/** Why the losses of a whole epoch are bounds, or not those of single flows. */
function doubts(epoch) {
  const sets = epoch.indistinct ?? [];
  const packets = sets.reduce((total, set) => total + set.packets, 0);
  const causes = (epoch.causes ?? []).map((cause) => cause.reason);
  return sets.length ? [...causes, `${packets} packets of flows that can't be told apart`] : causes;
}

/** Why the newest epochs are not whole, or their losses bounds; nothing where neither is so. */
export function alarm(element, epochs) {
  const newest = epochs.slice(-20);
  const incomplete = newest.filter((epoch) => !epoch.complete);
  const bounded = newest.filter((epoch) => epoch.complete && doubts(epoch).length);
  const bad = incomplete.length ? incomplete : bounded;
  element.hidden = bad.length === 0;
  if (bad.length === 0) return;
  const worst = bad.at(-1);
  const [what, why] = incomplete.length
    ? ['incomplete, so their losses are not known', worst.incomplete_because]
    : ['with losses that are lower bounds', doubts(worst)];
  const text = `${bad.length} of the last ${newest.length} epochs ${what}. `
    + `Epoch ${worst.epoch}: ${why.join('; ')}`;
  if (element.textContent !== text) element.textContent = text;
}

function tile(id, title, value, about, bad = false) {
  const number = el('b', '', value);
  number.id = id;
  return el('div', bad ? 'tile bad' : 'tile', el('h3', '', title), number, el('p', '', about));
}

/** Of how many epochs not all losses are known, if there are any. */
function notAll(victims) {
  const unknown = victims.epochs_unknown;
  return unknown ? `, of ${count(unknown)} not all losses known` : '';
}

/** The window in six numbers. */
export function tiles(element, epochs, victims) {
  const sum = (these, of) => these.reduce((total, epoch) => total + of(epoch), 0);
  const known = epochs.filter((epoch) => lostIn(epoch) != null);
  const lost = sum(known, lostIn);
  const bounded = known.some((epoch) => epoch.lost == null);
  const entered = sum(known, (epoch) => epoch.packets_in);
  const counted = epochs.filter((epoch) => enteredIn(epoch) != null);
  const seconds = sum(counted, (epoch) => epoch.length_ms) / 1e3;
  const newest = epochs.at(-1);
  const flows = newest?.edges.every((edge) => edge.cardinality != null)
    ? newest.edges.reduce((total, edge) => total + edge.cardinality, 0) : null;
  const errors = newest?.edges.map((edge) => edge.cardinality_error) ?? [];
  const exact = errors.every((error) => error === 0) ? 'exact' : 'estimated';
  const unknown = victims?.epochs_unknown;
  const incomplete = epochs.filter((epoch) => !epoch.complete).length;
  const load = newest && Math.max(...loads(newest).filter((value) => value != null));
  const share = entered > 0 ? lost / entered : null;
  replace(element, 
    tile('tile-loss', 'Loss', known.length ? `${bounded ? '≥ ' : ''}${percent(share ?? 0)}` : '–',
      known.length ? `${bounded ? 'at least ' : ''}${count(lost)} of ${count(entered)} packets` : 'no epoch with known losses',
      lost > 0),
    tile('tile-victims', 'Victim flows',
      victims && unknown === victims.epochs && !victims.victims ? '–' : count(victims?.victims),
      victims?.epochs ? `in ${count(victims.epochs)} epochs${notAll(victims)}` : ''),
    tile('tile-packets', 'Traffic', seconds ? short(sum(counted, enteredIn) / seconds) : '–',
      'packets a second'),
    tile('tile-flows', 'Flows', count(flows && Math.round(flows)),
      flows == null ? '' : `last epoch, ${errors.includes(null) ? 'at least' : exact}`),
    tile('tile-load', 'Highest load', newest && Number.isFinite(load) ? ratio(load) : '–',
      'flows a bucket, want 0.6–0.7', load > 0.75),
    tile('tile-whole', 'Complete', epochs.length ? percent(1 - incomplete / epochs.length) : '–',
      `${count(incomplete)} of ${count(epochs.length)} epochs incomplete`, incomplete > 0),
  );
}

/** Load factors of an epoch: the fullest HH encoder, HL, LL. */
function loads(epoch) {
  const hh = epoch.edges.map((edge) => edge.hh_load_factor).filter((load) => load != null);
  return [hh.length ? Math.max(...hh) : null, epoch.decode.hl_load_factor,
    epoch.decode.ll_load_factor];
}

const perSecond = (value, epoch) => (value == null ? null : (value * 1000) / epoch.length_ms);

/** The lanes over time. */
export function makeLanes() {
  const state = { healthy: 0.45, undecoded: 0.7, ill: 1, incomplete: 0.2 };
  return [
    new Lane({ title: 'State', height: 16, series: [
      { id: 'state', label: '', kind: 'states', value: stateOf, heights: state,
        text: (word) => (word === 'undecoded' ? 'losses not decoded' : word) },
    ] }),
    new Lane({ title: 'Traffic', unit: 'packets a second', height: 78, series: [
      { id: 'packets-in', label: 'entered', kind: 'area', color: 'in', text: short,
        value: (epoch) => perSecond(enteredIn(epoch), epoch) },
    ] }),
    new Lane({ title: 'Losses', unit: 'packets an epoch', height: 84, series: [
      { id: 'lost', label: 'lost', kind: 'bars', color: 'lost', value: lostIn },
      { id: 'victims', label: 'victim flows', kind: 'line', color: 'plain',
        value: (epoch) => epoch.victims },
    ] }),
    new Lane({ title: 'Memory of the encoders', unit: 'buckets an array', height: 132,
      stacked: true, max: (most) => most || 1, series: [
        { id: 'hh-buckets', label: 'HH', kind: 'area', color: 'hh',
          value: (epoch) => epoch.config.hh_buckets },
        { id: 'hl-buckets', label: 'HL', kind: 'area', color: 'hl',
          value: (epoch) => epoch.config.hl_buckets },
        { id: 'll-buckets', label: 'LL', kind: 'area', color: 'll',
          value: (epoch) => epoch.config.ll_buckets },
      ] }),
    new Lane({ title: 'Load of the encoders', unit: 'flows a bucket', height: 104, tick: digits,
      max: (most) => Math.max(0.8, Math.ceil(most * 5) / 5), band: [0.6, 0.7, 'wanted'], series: [
        { id: 'hh-load', label: 'HH, fullest edge', kind: 'line', color: 'hh', text: ratio,
          value: (epoch) => loads(epoch)[0] },
        { id: 'hl-load', label: 'HL', kind: 'line', color: 'hl', text: ratio,
          value: (epoch) => loads(epoch)[1] },
        { id: 'll-load', label: 'LL', kind: 'line', color: 'll', text: ratio,
          value: (epoch) => loads(epoch)[2] },
      ] }),
    new Lane({ title: 'Thresholds', unit: 'packets', height: 78, log: true, series: [
      { id: 't-h', label: 'T_h', kind: 'line', color: 'hh', value: (epoch) => epoch.config.t_h },
      { id: 't-l', label: 'T_l', kind: 'line', color: 'll', value: (epoch) => epoch.config.t_l },
    ] }),
    new Lane({ title: 'Sample rate', unit: 'of light-loss candidates', height: 50, max: () => 1,
      tick: percent, series: [
        { id: 'sample-rate', label: 'sampled', kind: 'area', color: 'll', text: percent,
          value: (epoch) => epoch.config.sample_rate },
      ] }),
    new Lane({ title: 'Collection', unit: 'ms after the epoch’s end', height: 84, series: [
      { id: 'ingress', label: 'ingress in', kind: 'line', color: 'hh', text: ms,
        value: (epoch) => epoch.timing?.ingress_ms },
      { id: 'egress', label: 'egress in', kind: 'line', color: 'hl', text: ms,
        value: (epoch) => epoch.timing?.egress_ms },
      { id: 'planned', label: 'planned', kind: 'line', color: 'll', text: ms,
        value: (epoch) => epoch.timing?.planned_ms },
      { id: 'published', label: 'published', kind: 'line', color: 'plain', text: ms,
        value: (epoch) => epoch.timing?.published_ms },
    ] }),
  ];
}

const CHANGES_SHOWN = 4;

const FIELDS = [['t_h', 'T_h'], ['t_l', 'T_l'], ['sample_rate', 'sample rate'],
  ['hh_buckets', 'HH'], ['hl_buckets', 'HL'], ['ll_buckets', 'LL']];

function differences(before, after) {
  return FIELDS.filter(([field]) => before[field] !== after[field])
    .map(([field, name]) => `${name} ${digitsOf(before[field])} → ${digitsOf(after[field])}`);
}

const digitsOf = (value) => (Number.isInteger(value) ? count(value) : digits(value));

/** What was decided or seen to change, newest first. */
function changesIn(epochs) {
  const changes = [];
  const planned = new Set(epochs.map((epoch) => epoch.plan?.effective_epoch));
  for (let index = epochs.length - 1; index >= 0 && changes.length < CHANGES_SHOWN; index -= 1) {
    const epoch = epochs[index];
    const before = epochs[index - 1];
    const { plan } = epoch;
    // A plan may be repeated until it holds: only the epoch that brought it counts.
    if (plan?.reasons.length && before?.plan?.effective_epoch !== plan.effective_epoch) {
      changes.push({ epoch, effective: plan.effective_epoch, applied: plan.applied,
        moved: differences(epoch.config, plan.config), reasons: plan.reasons });
    }
    const moved = before ? differences(before.config, epoch.config) : [];
    if (moved.length && epoch.complete && before.complete && !planned.has(epoch.epoch)) {
      changes.push({ epoch, effective: epoch.epoch, applied: true, moved,
        reasons: ['Not by a plan of this window: by hand, or planned before.'] });
    }
  }
  return changes;
}

/** The attention that holds, and why. */
export function attention(element, epochs) {
  const newest = epochs.at(-1);
  if (!newest) {
    replace(element, nothing('Shown with the first epoch.'));
    return;
  }
  const { config } = newest;
  const field = (id, name, value, kind = '') => {
    const term = el('dd', '', value);
    term.id = id;
    return el('div', kind, el('dt', '', name), term);
  };
  const now = el('dl', '', field('now-t-h', 'T_h', count(config.t_h)),
    field('now-t-l', 'T_l', count(config.t_l)),
    field('now-sample-rate', 'Sample rate', percent(config.sample_rate)),
    field('now-buckets', 'HH / HL / LL buckets',
      [config.hh_buckets, config.hl_buckets, config.ll_buckets].map(count).join(' / '), 'wide'));
  const changes = changesIn(epochs).map((change) => el('li', '',
    el('p', '', `${clock(change.epoch.start_unix_ns)}  `,
      el('strong', '', change.moved.join(', ') || 'no change'),
      change.applied ? ` from epoch ${change.effective}` : ' (planned, not applied)'),
    el('p', 'why', change.reasons.join(' '))));
  replace(element, now, changes.length
    ? el('ol', 'log', ...changes)
    : nothing('No change in this window.'));
}

/** A small bar beside a number; `share` of the largest. */
export function bar(share, color) {
  const meter = el('meter', `bar ${color}`);
  meter.value = share;
  meter.setAttribute('aria-hidden', 'true');
  return meter;
}

/** Flows that lost packets in the window. */
export function victimTable(element, about, victims) {
  about.textContent = victims?.epochs
    ? `over ${count(victims.epochs)} epochs, most packets first${notAll(victims)}` : '';
  if (!victims?.flows.length) {
    replace(element, nothing(!victims?.epochs ? 'Shown with the first epoch.'
      : victims.epochs === victims.epochs_unknown
        ? 'Not known: of no epoch of this window are all losses known.'
        : victims.epochs_unknown
          ? 'No flow lost a packet in those epochs of this window of which all losses are known.'
          : 'No flow lost a packet in this window.'));
    return;
  }
  const most = victims.flows[0].lost || 1;
  const rows = victims.flows.map((victim) => ({
    cells: [
      flowButton(victim),
      el('span', '', victim.uncertain ? `${count(victim.lost)} + ~${count(victim.uncertain)}`
        : count(victim.lost), bar(victim.lost / most, 'lost')),
      count(victim.epochs),
    ],
  }));
  const rest = victims.victims - victims.flows.length;
  replace(element, 
    el('div', 'scroll', table([['flow', ''], ['lost', 'number'], ['epochs', 'number']], rows)),
    ...(rest > 0 ? [nothing(`and ${count(rest)} more`)] : []));
}
