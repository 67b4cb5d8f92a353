// The dashboard's panel of cfs: which share of the flows has an exact count, how full the tables
// are, and what the latest window showed.

import { el, flowButton, nothing, replace, table } from '/dashboard/dom.js';
import { count } from '/dashboard/format.js';

const FLOWS_SHOWN = 20;

const percent = (share) => `${(100 * share).toFixed(1)} %`;

function coverage(report) {
  const of = `${count(report.monitored)} flows have an entry`;
  if (report.coverage == null) return `${of}; how many there are is not known`;
  const total = count(Math.round(report.flows_total));
  return `${of}, ${percent(report.coverage)} of ${total} `
    + `(${percent(report.coverage_low)} to ${percent(report.coverage_high)})`;
}

/** What tables have room for, whoever chooses. */
function optimum(report) {
  if (report.optimum == null) return 'how many tables have room for is not known';
  const { optimum: most, optimum_low: low, optimum_high: high } = report;
  const doubt = low === high ? '' : ` (${percent(low)} to ${percent(high)})`;
  return `tables have room for ${percent(most)}${doubt}`;
}

function place({ from, to }) {
  return `${from} → ${to}`;
}

/** Flows without an entry that may go round; of a switch that does not watch them, nothing. */
function guard(of) {
  if (of == null) return null;
  return of.missed > 0 ? `${count(of.suspects)} and more` : count(of.suspects);
}

function first(rows, all) {
  const rest = all.length - FLOWS_SHOWN;
  return rest > 0 ? [...rows, nothing(`and ${count(rest)} more`)] : rows;
}

function flows(list, columns, cells) {
  const rows = list.slice(0, FLOWS_SHOWN).map((item) => ({ cells: [flowButton(item), ...cells(item)] }));
  return first([el('div', 'scroll', table([['flow', ''], ...columns], rows))], list);
}

function spreaders(list) {
  const rows = list.slice(0, FLOWS_SHOWN).map((it) => ({ cells: [
    it.address, count(Math.floor(it.low)), it.estimate == null ? '' : count(Math.round(it.estimate)),
    it.high == null ? '' : count(Math.ceil(it.high)),
    it.certain ? 'yes' : 'perhaps',
  ] }));
  const columns = [['source', 'name'], ['destinations ≥', 'number'], ['about', 'number'], ['≤', 'number'],
    ['certain', '']];
  return first([el('div', 'scroll', table(columns, rows))], list);
}

/** What an empty list says nothing of. */
function unknown(report) {
  const of = [];
  if (report.loops.length === 0 && !report.loops_watched) of.push('loops');
  if (report.black_holes.length === 0 && !report.black_holes_known) of.push('where nothing goes on');
  const sources = report.superspreaders_complete || report.superspreaders_likely_complete;
  if (report.superspreaders.length === 0 && !sources) of.push('superspreaders');
  return of.length > 0 ? [nothing(`Not known: ${of.join(', ')}`)] : [];
}

/** Fills the panel from a report, which is null before the first. */
export function draw(element, report) {
  if (!report) return replace(element, nothing('Shown with the first window.'));
  const nodes = report.nodes.map((node) => ({ cells: [
    node.node, `${count(node.used)} of ${count(node.entries)}`, count(node.refused + node.evicted),
    count(Math.round(node.flows)), guard(node.guard),
    node.optimum_with_more == null ? null : percent(node.optimum_with_more),
  ] }));
  const columns = [['node', 'name'], ['entries', 'number'], ['flows without', 'number'], ['flows', 'number'],
    ['may go round', 'number'], ['optimum with 10 % more', 'number']];
  const parts = [nothing(`${coverage(report)}; ${optimum(report)}`), el('div', 'scroll', table(columns, nodes))];
  if (report.loops.length > 0) {
    parts.push(...flows(report.loops, [['hops a turn', 'number'], ['in a loop by', 'name'], ['certain', '']],
      (it) => [count(it.length), it.nodes.join(', '), it.certain ? 'yes' : 'perhaps']));
  }
  if (report.black_holes.length > 0) {
    const holes = report.black_holes.map((it) => ({ cells: [place(it.place), count(it.flows), count(it.packets)] }));
    const of = [['nothing goes on', 'name'], ['flows', 'number'], ['packets lost', 'number']];
    parts.push(el('div', 'scroll', table(of, holes)));
  }
  if (report.losses.length > 0) {
    parts.push(...flows(report.losses, [['lost', 'number'], ['between', 'name']],
      (it) => [count(it.lost), place(it.place)]));
  }
  if (report.superspreaders.length > 0) parts.push(...spreaders(report.superspreaders));
  parts.push(...unknown(report));
  return replace(element, ...parts);
}
