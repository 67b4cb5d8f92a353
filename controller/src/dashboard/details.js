// One epoch, flow by flow, and the edges.

import { distribution } from './charts.js';
import { el, flowButton, nothing, replace, table } from './dom.js';
import { clock, count, digits, flowText, ratio } from './format.js';
import { bar } from './overview.js';
import { get, store } from './store.js';

const FLOWS_SHOWN = 50;
const COLORS = ['e0', 'e1', 'e2', 'e3', 'e4', 'e5'];

/** The heading over the details: which epoch, and how it went. */
export function epochBar(number, about, report) {
  number.textContent = report ? report.epoch : '–';
  if (!report) {
    about.textContent = 'none reported yet';
    return;
  }
  const { decode } = report;
  const words = report.complete
    ? `complete, HL ${decode.hl}${decode.ll === 'absent' ? '' : `, LL ${decode.ll}`}`
    : `incomplete: ${report.incomplete_because.join('; ')}`;
  about.textContent = `${clock(report.start_unix_ns)}, ${report.length_ms} ms, ${words}`;
}

function chosen(report) {
  return report.edges.filter((edge) => !store.edge || edge.edge === store.edge);
}

/** Rows of `of(edge)`, largest `by` first, of all chosen edges together. */
function merged(report, of, by) {
  return chosen(report)
    .flatMap((edge) => of(edge).map((row) => ({ ...row, edge: edge.edge })))
    .sort((a, b) => by(b) - by(a));
}

function flowTable(element, columns, rows, cells) {
  const rest = rows.length - FLOWS_SHOWN;
  replace(element, 
    el('div', 'scroll', table(columns, rows.slice(0, FLOWS_SHOWN).map((row) => ({
      cells: cells(row),
    })))),
    ...(rest > 0 ? [nothing(`and ${count(rest)} more`)] : []));
}

/** The chosen edges of which not all flows are known, as text; empty where there are none. */
function unknownAt(report, isKnown = knowsFlows) {
  const edges = chosen(report).filter((edge) => !isKnown(edge)).map((edge) => edge.edge);
  return edges.length ? `not all flows of ${edges.join(', ')} are known` : '';
}

function knowsFlows(edge) {
  return edge.cardinality != null && edge.hh_decode === 'complete';
}

/** A number of packets, from the least, where it is not exact. */
function between(least, most) {
  return least == null ? count(most) : `${count(least)}–${count(most)}`;
}

/** Heavy hitters of an epoch. */
export function hitters(element, about, report) {
  const above = store.deployment?.tasks.heavy_hitter;
  about.textContent = above == null ? '' : `above ${count(above)} packets`;
  if (!report) return replace(element, nothing('Shown with the first epoch.'));
  const unknown = unknownAt(report, (edge) => edge.heavy_hitters_complete);
  about.textContent = [about.textContent, unknown].filter(Boolean).join('; ');
  const rows = merged(report, (edge) => edge.heavy_hitters, (hitter) => hitter.size);
  if (rows.length === 0 && unknown) {
    return replace(element, nothing(`None that is known: ${unknown}.`));
  }
  if (rows.length === 0) {
    const lower = `No flow of more than ${count(above)} packets in this epoch. To see smaller ones, `
      + 'lower heavy_hitter in [tasks] and send the controller SIGHUP.';
    return replace(element, nothing(lower));
  }
  const most = rows[0].size;
  return flowTable(element, [['flow', ''], ['edge', 'name'], ['packets', 'number']], rows, (row) => [
    flowButton(row), row.edge,
    el('span', '', between(row.size_min, row.size), bar(row.size / most, 'hh')),
  ]);
}

/** Heavy changes of an epoch against the one before. */
export function heavyChanges(element, about, report) {
  const above = store.deployment?.tasks.heavy_change;
  about.textContent = above == null ? '' : `by more than ${count(above)} packets`;
  if (!report) return replace(element, nothing('Shown with the first epoch.'));
  const by = (change) => Math.abs(change.after - change.before);
  const rows = merged(report, (edge) => edge.heavy_changes, by);
  const compared = chosen(report).some((edge) => edge.heavy_changes_since != null);
  const unknown = compared ? unknownAt(report, (edge) => edge.heavy_changes_complete) : '';
  about.textContent = [about.textContent, unknown].filter(Boolean).join('; ');
  if (rows.length === 0) {
    const none = unknown ? `None that is known: ${unknown}.`
      : 'No flow grew or shrank by that much since the epoch before.';
    return replace(element, nothing(compared ? none
      : 'Nothing to compare with: this epoch or the one before is not whole.'));
  }
  return flowTable(element, [['flow', ''], ['edge', 'name'], ['packets', 'number']], rows, (row) => {
    const grew = row.after > row.before;
    return [flowButton(row), row.edge,
      el('span', grew ? 'up-by' : 'down-by',
        `${grew ? '▲' : '▼'} ${between(row.before_min, row.before)} → ${
          between(row.after_min, row.after)}`)];
  });
}

/** Flow sizes of an epoch. */
export function sizes(element, report) {
  const edges = report ? chosen(report).filter((edge) => edge.size_distribution.length) : [];
  if (edges.length === 0) {
    const isEmpty = report && chosen(report).every((edge) => edge.cardinality === 0);
    replace(element, nothing(!report ? 'Shown with the first epoch.'
      : isEmpty ? 'No flows in this epoch.' : 'Not known.'));
    return;
  }
  const names = report.edges.map((edge) => edge.edge);
  const drawn = edges.map((edge) => ({
    name: edge.edge, color: COLORS[names.indexOf(edge.edge) % COLORS.length],
    sizes: edge.size_distribution,
  }));
  const legend = drawn.slice(0, COLORS.length).map((edge) =>
    el('span', `key ${edge.color}`, el('i'), edge.name));
  const more = drawn.length - legend.length;
  replace(element, distribution(element.clientWidth || 360, drawn),
    el('div', 'keys', ...legend, ...(more > 0 ? [`and ${more} more`] : [])));
}

const COLUMNS = [['edge', 'edge-name'], ['packets in', 'number'], ['packets out', 'number'],
  ['flows', 'number'], ['entropy', 'number'], ['hitters', 'number'], ['HH load', 'number'],
  ['clock offset', 'number'], ['path delay', 'number'], ['frames', 'number'],
  ['late, double, out of window', 'number'], ['', '']];

/** Every edge: its connection, and what it saw in the shown epoch. */
export function edges(element, report) {
  if (store.edges.length === 0) {
    replace(element, nothing('The controller has not answered yet.'));
    return;
  }
  const rows = store.edges.map((edge) => {
    const seen = report?.edges.find((other) => other.edge === edge.edge);
    const where = edge.connected ? `${edge.kind}, ${edge.program}, ${edge.address}` : 'not connected';
    const name = el('span', 'edge-name', el('span', edge.connected ? 'dot up' : 'dot down'), edge.edge);
    name.title = where;
    const missing = report?.missing_edges.includes(edge.edge);
    const problem = edge.connected
      ? [missing && 'missing in this epoch', edge.measuring_problem, edge.clock_problem].filter(Boolean).join('; ')
      : ['not connected', edge.last_problem].filter(Boolean).join(': ');
    return { cells: [
      name, count(seen?.packets_in), count(seen?.packets_out), cardinality(seen),
      seen?.entropy == null ? '–' : `${digits(seen.entropy)} bit`,
      hittersAt(seen), load(seen),
      offset(edge), millis(edge.path_delay_ms),
      count(edge.frames),
      [edge.late_frames, edge.duplicate_frames, edge.out_of_window_frames].map(count).join(', '),
      el('span', 'problem', problem),
    ] };
  });
  const shown = el('div', 'scroll', table(COLUMNS, rows));
  replace(element, shown);
}

/** Milliseconds as the microseconds they often are. */
function millis(value) {
  if (value == null) return '–';
  return Math.abs(value) < 1 ? `${digits(value * 1e3)} µs` : `${digits(value)} ms`;
}

function offset(edge) {
  if (edge.clock_offset_ms == null) return '–';
  return `${millis(edge.clock_offset_ms)} ± ${millis(edge.clock_error_ms)}`;
}

function cardinality(seen) {
  if (seen?.cardinality == null) return '–';
  if (seen.cardinality_error == null) return `≥ ${count(seen.cardinality)}`;
  return seen.cardinality_error === 0 ? count(seen.cardinality)
    : `${count(seen.cardinality)} ± ${count(seen.cardinality_error)}`;
}

/** Heavy hitters that are known: a dash where an edge's flows are not. */
function hittersAt(seen) {
  if (seen?.cardinality == null) return '–';
  return `${seen.heavy_hitters_complete ? '' : '≥ '}${count(seen.heavy_hitters.length)}`;
}

function load(seen) {
  if (seen?.hh_load_factor == null) return '–';
  const text = ratio(seen.hh_load_factor);
  return seen.hh_decode === 'complete' ? text : `${text} (${seen.hh_decode})`;
}

/** Opens the history of a flow. */
export async function showFlow(dialog, title, body, flow) {
  title.textContent = flowText(flow);
  replace(body, nothing('asking the controller'));
  if (!dialog.open) dialog.showModal();
  const query = new URLSearchParams({ ...flow, last: 200 });
  const epochs = await get(`/api/v1/flows/history?${query}`);
  if (!epochs) return replace(body, nothing('The controller does not answer.'));
  const seen = epochs.filter((epoch) => epoch.lost > 0 || epoch.sizes.some((at) => at.size > 0));
  const unknown = epochs.filter((epoch) => epoch.lost == null || epoch.sizes.length === 0).length;
  if (seen.length === 0) {
    const most = unknown ? `, of which ${count(unknown)} are not, or not all, known` : '';
    return replace(body, nothing(`Not seen in the last ${count(epochs.length)} epochs${most}.`));
  }
  const lost = epochs.reduce((sum, epoch) => sum + (epoch.partial ? 0 : epoch.lost ?? 0), 0);
  const isExact = epochs.every((epoch) => epoch.lost != null && mark(epoch) === '');
  const rows = [...seen].reverse().map((epoch) => ({ cells: [
    String(epoch.epoch), clock(epoch.start_unix_ns), el('span', '', ...sizesAt(epoch)),
    epoch.lost == null ? 'not known' : `${mark(epoch)}${count(epoch.lost)}`,
    epoch.class ?? '',
  ] }));
  return replace(body, 
    el('p', '', `${isExact ? '' : 'At least '}${count(lost)} packets lost in the last ${count(epochs.length)} epochs; seen in ${
      count(seen.length)} of them.`),
    el('div', 'scroll', table([['epoch', ''], ['time', ''], ['packets in', 'number'],
      ['lost', 'number'], ['class', '']], rows)));
}

/** What stands before a number that is not exact. */
function mark(epoch) {
  if (epoch.partial) return '~';
  return epoch.at_least ? '≥ ' : '';
}

function sizesAt(epoch) {
  const entered = epoch.sizes.filter((at) => at.size > 0);
  if (epoch.sizes.length === 0) return ['not known'];
  if (entered.length === 0) return ['–'];
  return [entered.map((at) => {
    const size = at.exact ? count(at.size) : `${count(at.size_min)}–${count(at.size)}`;
    return `${size} at ${at.edge}`;
  }).join(', ')];
}
