// Charts in SVG: lanes over time that share one axis and one cursor, and flow sizes on two logarithmic
// axes. An epoch is drawn as long as it lasted; where an epoch or its value is missing, so is the line.

import { el, svg } from './dom.js';
import { count, digits, short } from './format.js';

const GUTTER = 46;
const RIGHT = 6;
const TOP = 6;

/** Horizontal place of a time, for a view `{from, to, width}` in nanoseconds and pixels. */
function across(view, time) {
  const share = (time - view.from) / (view.to - view.from);
  return GUTTER + share * (view.width - GUTTER - RIGHT);
}

/** The time at a horizontal place. */
export function timeAt(view, x) {
  return view.from + ((x - GUTTER) / (view.width - GUTTER - RIGHT)) * (view.to - view.from);
}

function extent(view, epoch) {
  const end = epoch.start_unix_ns + epoch.length_ms * 1e6;
  return [across(view, Math.max(epoch.start_unix_ns, view.from)), across(view, end)];
}

/** Runs of neighbouring epochs with a value: lists of `[x from, x to, epoch]`. */
function runs(view, epochs, valueOf) {
  const found = [];
  let end = -Infinity;
  for (const epoch of epochs) {
    if (valueOf(epoch) == null) {
      end = -Infinity;
      continue;
    }
    const [from, to] = extent(view, epoch);
    // Epochs may be fractions of a pixel long.
    if (from > end + 0.5 || end === -Infinity) found.push([]);
    found.at(-1).push([from, to, epoch]);
    end = to;
  }
  return found;
}

const at = (number) => number.toFixed(1);

/** The upper outline of a run, as steps; equal neighbours become one. */
function steps(run, heightOf) {
  let last = heightOf(run[0][2]);
  let path = `${at(run[0][0])} ${at(last)}`;
  for (const [from, , epoch] of run) {
    const height = heightOf(epoch);
    if (height !== last) path += `H${at(from)}V${at(height)}`;
    last = height;
  }
  return `${path}H${at(run.at(-1)[1])}`;
}

/** The same outline from right to left. */
function stepsBack(run, heightOf) {
  let last = heightOf(run.at(-1)[2]);
  let path = `V${at(last)}`;
  for (const [, to, epoch] of [...run].reverse()) {
    const height = heightOf(epoch);
    if (height !== last) path += `H${at(to)}V${at(height)}`;
    last = height;
  }
  return `${path}H${at(run[0][0])}Z`;
}

/** The next of 1, 2, 5, 10, 20, 50... that is not below. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value * 0.9999) * power;
}

/**
 * A chart over time.
 *
 * `spec`: `title`, `unit`, `height`, `series` (each `label`, `kind` of `area`, `line`, `bars` or
 * `states`, `color` as a class, `value(epoch)`, `text(value)`), and where wanted `stacked`, `log`,
 * `max(epochs)`, `band` ([low, high, label]), `tick(value)`.
 */
export class Lane {
  constructor(spec) {
    this.spec = spec;
    this.values = spec.series.map((series) => {
      const value = el('b', '', '–');
      value.dataset.series = series.id;
      return value;
    });
    const keys = spec.series.map((series, index) =>
      el('span', `key ${series.color ?? ''}`, el('i', series.kind), `${series.label} `,
        this.values[index]));
    const heading = el('h3', '', spec.title, ' ');
    if (spec.unit) heading.append(el('small', '', spec.unit));
    this.chart = svg('svg', { height: spec.height, role: 'img', 'aria-label': spec.title });
    this.cursor = svg('line', { class: 'cursor', y1: 0, y2: spec.height });
    this.root = el('div', 'lane', el('div', 'head', heading, el('span', 'keys', ...keys)),
      this.chart);
  }

  /** Draws the epochs of a view. */
  draw(view, epochs) {
    const { spec } = this;
    const parts = [];
    this.chart.setAttribute('viewBox', `0 0 ${view.width} ${spec.height}`);
    const most = Math.max(0, ...epochs.map((epoch) => this.total(epoch)));
    this.max = spec.max ? spec.max(most) : roundUp(most);
    if (spec.log) this.max = Math.max(10, 10 ** Math.ceil(Math.log10(Math.max(most, 1))));
    if (spec.series[0].kind !== 'states') parts.push(...this.axis(view));
    const values = (epoch) => spec.series.some((series) => series.value(epoch) != null);
    if (epochs.length && !epochs.some(values)) {
      parts.push(svg('text', { x: view.width / 2, y: spec.height / 2, class: 'tick middle' },
        'not known in this window'));
    }
    let below = () => 0;
    for (const series of spec.series) {
      if (series.kind === 'states') parts.push(...this.states(view, epochs, series));
      else if (series.kind === 'bars') parts.push(this.bars(view, epochs, series));
      else {
        const base = below;
        const upper = spec.stacked
          ? (epoch) => base(epoch) + (series.value(epoch) ?? 0)
          : series.value;
        parts.push(this.outline(view, epochs, series, upper, base));
        if (spec.stacked) below = upper;
      }
    }
    this.chart.replaceChildren(...parts, this.cursor);
  }

  /** Marks an epoch, and reads its values; the newest is read without a mark. */
  point(view, epoch, marked) {
    this.cursor.classList.toggle('on', Boolean(epoch && marked));
    if (epoch && marked) {
      const [from, to] = extent(view, epoch);
      this.cursor.setAttribute('x1', (from + to) / 2);
      this.cursor.setAttribute('x2', (from + to) / 2);
    }
    this.spec.series.forEach((series, index) => {
      const value = epoch ? series.value(epoch) : null;
      this.values[index].textContent = value == null ? '–' : (series.text ?? count)(value);
    });
  }

  total(epoch) {
    const values = this.spec.series.map((series) => Number(series.value(epoch)) || 0);
    return this.spec.stacked ? values.reduce((sum, value) => sum + value, 0) : Math.max(...values);
  }

  y(value) {
    const room = this.spec.height - TOP - 1;
    const share = this.spec.log
      ? Math.log10(Math.max(value, 1)) / Math.log10(this.max)
      : value / this.max;
    return TOP + room * (1 - Math.min(Math.max(share, 0), 1));
  }

  axis(view) {
    const { spec } = this;
    const right = view.width - RIGHT;
    const ticks = spec.log
      ? Array.from({ length: Math.round(Math.log10(this.max)) + 1 }, (_, power) => 10 ** power)
      : [0, this.max / 2, this.max];
    const shown = spec.log && ticks.length > 4
      ? ticks.filter((_, index) => index % 2 === 0)
      : ticks;
    const parts = shown.flatMap((tick) => {
      const y = this.y(tick);
      const label = svg('text', { x: GUTTER - 6, y: Math.max(y + 3.5, 9), class: 'tick end' },
        (spec.tick ?? short)(tick));
      return [svg('line', { x1: GUTTER, x2: right, y1: y, y2: y, class: 'grid' }), label];
    });
    if (spec.band) {
      const [low, high, text] = spec.band;
      parts.push(
        svg('rect', { x: GUTTER, width: right - GUTTER, y: this.y(high),
          height: this.y(low) - this.y(high), class: 'band' }),
        svg('text', { x: GUTTER + 6, y: this.y(high) - 3, class: 'tick' }, text));
    }
    return parts;
  }

  outline(view, epochs, series, upper, lower) {
    const up = (epoch) => this.y(upper(epoch));
    const down = (epoch) => this.y(lower(epoch));
    const path = runs(view, epochs, series.value).map((run) => (series.kind === 'area'
      ? `M${steps(run, up)}${stepsBack(run, down)}`
      : `M${steps(run, up)}`));
    return svg('path', { d: path.join(''), class: `${series.kind} ${series.color}` });
  }

  bars(view, epochs, series) {
    const floor = at(this.y(0));
    const path = epochs.filter((epoch) => series.value(epoch) > 0).map((epoch) => {
      const [from, to] = extent(view, epoch);
      const right = at(Math.max(to, from + 1.5));
      return `M${at(from)} ${floor}V${at(this.y(series.value(epoch)))}H${right}V${floor}Z`;
    });
    return svg('path', { d: path.join(''), class: `area ${series.color}` });
  }

  /** One bar for each run of the same state: distinguished by height as well as by colour. */
  states(view, epochs, series) {
    const parts = [];
    let open = null;
    for (const epoch of epochs) {
      const state = series.value(epoch);
      const [from, to] = extent(view, epoch);
      if (open && open.state === state && from <= open.to + 0.5) open.to = to;
      else parts.push((open = { state, from, to }));
    }
    return parts.map(({ state, from, to }) => {
      const height = series.heights[state] * this.spec.height;
      return svg('rect', { x: from, width: Math.max(to - from, 1.5),
        y: this.spec.height - height, height, class: `state ${state}` });
    });
  }
}

/** The axis below the lanes: seconds before the newest epoch's end. */
export function timeAxis(view) {
  const seconds = (view.to - view.from) / 1e9;
  const wanted = view.width < 500 ? 3 : 6;
  const step = roundUp(seconds / wanted);
  const chart = svg('svg', { viewBox: `0 0 ${view.width} 18`, height: 18, 'aria-hidden': true });
  for (let before = 0; before <= seconds; before += step) {
    const x = across(view, view.to - before * 1e9);
    chart.append(svg('text', { x, y: 13, class: before === 0 ? 'tick end' : 'tick middle' },
      before === 0 ? 'now' : `−${digits(before)} s`));
  }
  return chart;
}

/**
 * Number of flows by size, both axes logarithmic. `edges`: each `name`, `color`, and `sizes` as
 * reports give them, `[packets, flows]`.
 */
export function distribution(width, edges) {
  const height = Math.round(Math.min(260, Math.max(190, width * 0.55)));
  const left = 40;
  const bottom = 30;
  const points = edges.flatMap((edge) => edge.sizes);
  const decades = (values) => Math.max(1, Math.ceil(Math.log10(Math.max(...values, 1)) + 1e-9));
  const xs = decades(points.map(([size]) => size));
  const ys = decades(points.map(([, flows]) => flows));
  const x = (size) => left + (Math.log10(size) / xs) * (width - left - 12);
  // Below one flow, estimates say little: they lie on the axis.
  const y = (flows) => 10 + (1 - Math.log10(Math.max(flows, 1)) / ys) * (height - bottom - 10);
  const chart = svg('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'img',
    'aria-label': 'Number of flows by size' });
  for (let power = 0; power <= xs; power += 1) {
    const place = x(10 ** power);
    chart.append(
      svg('line', { x1: place, x2: place, y1: 10, y2: height - bottom, class: 'grid' }),
      svg('text', { x: place, y: height - bottom + 13, class: 'tick middle' }, count(10 ** power)));
  }
  for (let power = 0; power <= ys; power += 1) {
    const place = y(10 ** power);
    chart.append(
      svg('line', { x1: left, x2: width - 12, y1: place, y2: place, class: 'grid' }),
      svg('text', { x: left - 5, y: place + 3.5, class: 'tick end' }, count(10 ** power)));
  }
  chart.append(
    svg('text', { x: width - 12, y: height - 3, class: 'tick end' }, 'packets in the epoch'),
    svg('text', { x: left + 4, y: 19, class: 'tick' }, 'flows'));
  edges.forEach((edge) => {
    // A circle each would be thousands of elements: zero-length strokes with round ends are dots.
    const path = edge.sizes.map(([size, flows]) => `M${at(x(size))} ${at(y(flows))}h0`).join('');
    chart.append(svg('path', { d: path, class: `dots ${edge.color}` }));
  });
  return chart;
}
