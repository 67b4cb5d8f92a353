// Puts the page together: draws what the store knows, a few times a second at most, and turns what
// the reader does into what is shown.

import { timeAt, timeAxis } from './charts.js';
import * as details from './details.js';
import { el } from './dom.js';
import * as overview from './overview.js';
import { keep, listen, refreshNow, store, windowEpochs } from './store.js';
import { systemPanels } from './systems.js';

/** Eyes follow no more. */
const REDRAW_MS = 250;

const byId = (id) => document.getElementById(id);
const lanes = overview.makeLanes();
const axis = el('div', 'axis');
byId('lanes').append(...lanes.map((lane) => lane.root), axis);

/** What the lanes show, in nanoseconds and pixels, and the epoch under the pointer. */
let view = { from: 0, to: 1, width: 600 };
let pointed = null;

function draw() {
  const epochs = windowEpochs();
  const newest = store.epochs.at(-1);
  overview.badge(byId('state'), newest);
  link();
  waiting(newest);
  overview.alarm(byId('alarm'), epochs);
  overview.tiles(byId('tiles'), epochs, store.victims);
  nodes();
  drawLanes(epochs);
  edgeChoice();
  once('attention', [newest], () => overview.attention(byId('attention'), store.epochs));
  once('victims', [store.victims],
    () => overview.victimTable(byId('victims'), byId('victims-window'), store.victims));
  once('epoch', [store.report, store.kept, store.edge, store.deployment], drawEpoch);
  once('edges', [store.report, store.edges],
    () => details.edges(byId('edges'), store.report));
  systemPanels(byId('systems'), redraw);
  document.body.dataset.epoch = store.report?.epoch ?? '';
}

function drawEpoch() {
  const { report } = store;
  details.epochBar(byId('epoch-number'), byId('epoch-about'), report);
  byId('live').hidden = store.kept == null;
  details.hitters(byId('hitters'), byId('hitters-above'), report);
  details.heavyChanges(byId('heavy-changes'), byId('heavy-changes-above'), report);
  details.sizes(byId('distribution'), report);
}

const drawn = new Map();

/** Draws a panel only when what it shows is another: readers select, scroll and click in it. */
function once(panel, shown, drawIt) {
  const before = drawn.get(panel);
  if (before && shown.every((value, index) => value === before[index])) return;
  drawn.set(panel, shown);
  drawIt();
}

function link() {
  const words = {
    connecting: 'connecting',
    live: store.kept == null ? 'live' : 'live, showing a kept epoch',
    lost: 'controller not reached; trying again',
  };
  const element = byId('link');
  element.className = `link ${store.link}`;
  if (element.textContent !== words[store.link]) element.textContent = words[store.link];
}

function waiting(newest) {
  const element = byId('waiting');
  element.hidden = Boolean(newest) || store.link !== 'live';
  if (element.hidden) return;
  const missing = store.edges.filter((edge) => !edge.connected).map((edge) => edge.edge);
  const todo = missing.length === 0
    ? 'All edges are connected; the first epoch is reported when they have sent it.'
    : `Not connected: ${missing.join(', ')}. Start calumma-edge there, with this controller's address `
      + 'as `controller` and that name as `name` in its configuration.';
  element.replaceChildren(el('h2', '', 'No epoch has been reported yet'), el('p', 'nothing', todo));
}

/** What is wrong with other nodes than edges, whose state is in their table. */
function nodes() {
  const problems = (store.topology?.problems ?? []).filter((text) => !text.startsWith('edge '));
  const element = byId('nodes');
  element.hidden = problems.length === 0;
  const text = problems.join('; ');
  if (element.textContent !== text) element.textContent = text;
}

function edgeChoice() {
  const select = byId('edge');
  const names = store.edges.map((edge) => edge.edge);
  if (select.options.length === names.length + 1) return;
  select.replaceChildren(new Option('all edges', ''), ...names.map((name) => new Option(name, name)));
  select.value = store.edge;
}

function drawLanes(epochs) {
  const newest = epochs.at(-1);
  const width = byId('lanes').clientWidth || 600;
  const to = newest ? newest.start_unix_ns + newest.length_ms * 1e6 : 1e9;
  const span = Math.min(store.windowSeconds * 1e9, spanOf(epochs));
  view = { from: to - span, to, width };
  for (const lane of lanes) lane.draw(view, epochs);
  axis.replaceChildren(timeAxis(view));
  point(epochs);
}

/** A window that is not yet full is drawn as far as it goes, but never shorter than a second. */
function spanOf(epochs) {
  if (epochs.length === 0) return 1e9;
  const last = epochs.at(-1);
  return Math.max(last.start_unix_ns - epochs[0].start_unix_ns + last.length_ms * 1e6, 1e9);
}

function point(epochs) {
  const marked = pointed ?? epochs.find((epoch) => epoch.epoch === store.kept);
  for (const lane of lanes) lane.point(view, marked ?? epochs.at(-1), marked);
}

let due = 0;
let asked = false;
/** While a button is held down, nothing moves away under it. */
let pressed = false;

/** Draws soon; however often it is asked for, only so often. */
function redraw() {
  if (asked) return;
  asked = true;
  setTimeout(() => requestAnimationFrame(() => {
    asked = false;
    if (pressed) return;
    due = performance.now() + REDRAW_MS;
    draw();
  }), Math.max(0, due - performance.now()));
}

function epochAt(event) {
  const time = timeAt(view, event.clientX - byId('lanes').getBoundingClientRect().left);
  return windowEpochs().findLast((epoch) => epoch.start_unix_ns <= time) ?? null;
}

function step(by) {
  const { epochs } = store;
  const shown = store.kept ?? epochs.at(-1)?.epoch;
  const index = epochs.findIndex((epoch) => epoch.epoch === shown) + by;
  if (index >= 0 && index < epochs.length) keep(epochs[index].epoch);
}

byId('lanes').addEventListener('pointermove', (event) => {
  pointed = epochAt(event);
  point(windowEpochs());
});
byId('lanes').addEventListener('pointerleave', () => {
  pointed = null;
  point(windowEpochs());
});
byId('lanes').addEventListener('click', (event) => {
  const epoch = epochAt(event);
  if (epoch) keep(epoch.epoch);
});
byId('lanes').addEventListener('keydown', (event) => {
  const steps = { ArrowLeft: -1, ArrowRight: 1 };
  if (event.key in steps) {
    event.preventDefault();
    step(steps[event.key]);
  }
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !byId('flow').open) keep(null);
});
byId('live').addEventListener('click', () => keep(null));
byId('window').addEventListener('change', (event) => {
  store.windowSeconds = Number(event.target.value);
  redraw();
  refreshNow();
});
byId('edge').addEventListener('change', (event) => {
  store.edge = event.target.value;
  redraw();
});
document.addEventListener('click', (event) => {
  const button = event.target.closest('button.flow');
  if (button) {
    details.showFlow(byId('flow'), byId('flow-title'), byId('flow-body'),
      JSON.parse(button.dataset.flow));
  }
});
document.addEventListener('pointerdown', () => { pressed = true; });
for (const end of ['pointerup', 'pointercancel']) {
  document.addEventListener(end, () => {
    pressed = false;
    redraw();
  });
}
new ResizeObserver(() => {
  drawn.delete('epoch');
  redraw();
}).observe(byId('lanes'));

redraw();
listen(redraw);
