// The dashboard's panel of sketchint: switches with their latencies, paths, and what was unusual in
// the latest window.

import { el, flowButton, nothing, replace, table } from '/dashboard/dom.js';
import { count } from '/dashboard/format.js';

const SHOWN = 20;

const us = (value) => (value == null ? '' : `${value.toFixed(1)} µs`);

function bounds({ packets, at_least: least, at_most: most }) {
  if (packets != null) return count(packets);
  return most == null ? `≥ ${count(least)}` : `${count(least)} to ${count(most)}`;
}

function coverage({ coverage: it, state }) {
  const share = it.packets > 0 ? ` (${((100 * it.int_packets) / it.packets).toFixed(1)} %)` : '';
  return `${state}: ${count(it.int_packets)} of ${count(it.packets)} packets came with INT${share}`;
}

function first(rows, all) {
  const rest = all.length - SHOWN;
  return rest > 0 ? [...rows, nothing(`and ${count(rest)} more`)] : rows;
}

function list(items, columns, cells) {
  const rows = items.slice(0, SHOWN).map((item) => ({ cells: cells(item) }));
  return first([el('div', 'scroll', table(columns, rows))], items);
}

function mean(hop) {
  if (hop.mean_us != null) return us(hop.mean_us);
  return hop.mean_max_us == null ? '?' : `${us(hop.mean_min_us)} to ${us(hop.mean_max_us)}`;
}

/** Fills the panel from a report, which is null before the first. */
export function draw(element, report) {
  if (!report) return replace(element, nothing('Shown with the first window.'));
  const parts = [nothing(coverage(report))];
  parts.push(...list(report.nodes,
    [['switch', 'name'], ['packets', 'number'], ['mean', 'number'], ['p99', 'number'], ['longest', 'number'],
      ['inflated', 'number']],
    (of) => [
      of.node, bounds(of), us(of.latency_us.mean), us(of.latency_us.p99), us(of.latency_us.max),
      of.inflated == null ? `≥ ${count(of.inflated_at_least)}` : count(of.inflated)]));
  // Of packets to other sinks no latencies are known.
  const partial = report.nodes.filter((of) => of.packets == null);
  if (partial.length > 0) {
    const sinks = [...new Set(partial.flatMap((of) => of.latency_sinks))].sort();
    parts.push(nothing(sinks.length > 0
      ? `Latencies of switches are of packets to ${sinks.join(', ')}.` : 'No sink tells latencies of switches.'));
  }
  const timed = report.links.filter((link) => link.latency_us != null);
  if (timed.length > 0) {
    parts.push(...list(timed,
      [['link', 'name'], ['packets', 'number'], ['mean', 'number'], ['longest', 'number'], ['wrong by at most', 'number']],
      ({ from, to, latency_us: it, clock_error_us: clock, arrival_error_us: arrival }) => [
        `${from} → ${to}`, count(it.packets), us(it.mean), us(it.max), us(clock + arrival)]));
  }
  if (report.flows.length > 0) {
    parts.push(...list(report.flows,
      [['flow', ''], ['packets', 'number'], ['path', 'name'], ['mean latencies', 'name']],
      (flow) => [flowButton(flow), bounds(flow), flow.paths.map((it) => it.path.join(' → ')).join(', '),
        flow.hops.map((hop) => `${hop.node} ${mean(hop)}`).join(', ')]));
  }
  if (report.inflated.length > 0) {
    parts.push(...list(report.inflated,
      [['flow', ''], ['inflated at', 'name'], ['times', 'number'], ['longest', 'number']],
      (it) => [flowButton(it), it.node, it.count == null ? `≥ ${count(it.at_least)}` : count(it.count), us(it.max_us)]));
  }
  if (report.path_changes.length > 0) {
    parts.push(...list(report.path_changes, [['flow', ''], ['paths now', 'name']],
      (it) => [flowButton(it), it.after.map((path) => path.join(' → ')).join(', ')]));
  }
  if (report.loops.length > 0) {
    parts.push(...list(report.loops, [['loop', 'name'], ['packets', 'number']],
      (it) => [it.path.join(' → '), bounds(it)]));
  }
  return replace(element, ...parts);
}
