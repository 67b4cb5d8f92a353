// What the page knows: epochs as the controller sends them, and what is asked for beside them. The
// stream brings summaries of every epoch; flows are asked for once a second, however many epochs
// pass, so that a phone keeps up with a controller that reports a hundred times a second.

const REFRESH_MS = 1000;
const RETRY_MS = 2000;

export const store = {
  /** `connecting`, `live` or `lost`. */
  link: 'connecting',
  deployment: null,
  /** Summaries, oldest first. */
  epochs: [],
  edges: [],
  /** Who is expected, who is connected, and what does not fit. */
  topology: null,
  /** The controller's measurement systems, and the latest report of each that has panels. */
  systems: [],
  reports: {},
  victims: null,
  /** The report that is shown flow by flow. */
  report: null,
  /** The epoch that the reader keeps, or null for the newest. */
  kept: null,
  windowSeconds: 60,
  edge: '',
};

let changed = () => {};

/** Starts to listen; `onChange` is called after every change. */
export function listen(onChange) {
  changed = onChange;
  keptFromAddress();
  connect();
  refresh();
  addEventListener('hashchange', keptFromAddress);
  document.addEventListener('visibilitychange', () => document.hidden || refreshNow());
}

/** Epochs that fit into the window. */
export function windowEpochs() {
  const last = store.epochs.at(-1);
  if (!last) return [];
  const from = last.start_unix_ns - store.windowSeconds * 1e9;
  return store.epochs.filter((epoch) => epoch.start_unix_ns > from);
}

/** The page's address may name an epoch: `#35905028648`. Reports are sent to colleagues so. */
function keptFromAddress() {
  const epoch = Number(location.hash.slice(1));
  store.kept = Number.isSafeInteger(epoch) && epoch > 0 ? epoch : null;
  changed();
}

/** Shows one epoch from now on; null for the newest. */
export function keep(epoch) {
  store.kept = epoch;
  history.replaceState(null, '', epoch == null ? location.pathname : `#${epoch}`);
  changed();
  refreshNow();
}

/** Asks anew, since the reader changed what is wanted. */
export function refreshNow() {
  ask().then(changed);
}

/** The JSON at a path of the API; null where there is none. */
export async function get(path) {
  try {
    const answer = await fetch(path);
    if (answer.status === 401) await askForToken();
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

/**
 * Shows the controller a token, for which it gives a cookie that is good for reading: an event
 * stream can't send a header. Whether it was one that is known.
 */
async function showToken(token) {
  const headers = { authorization: `Bearer ${token.trim()}`, 'content-type': 'application/json' };
  const answer = await fetch('/api/v1/session', { method: 'POST', headers });
  return answer.ok;
}

let asking = null;

/** Asks the reader for a token where the controller wants one; once at a time. */
function askForToken() {
  asking ??= (async () => {
    const token = prompt('This controller wants a token (calumma-controller token add):');
    if (token && (await showToken(token))) asking = null;
  })();
  return asking;
}

/** Whether the stream is a new one, which begins with epochs that may be known. */
let replaying = true;

function connect() {
  replaying = true;
  const source = new EventSource('/api/v1/events?last=12000');
  source.onopen = async () => {
    store.link = 'live';
    store.deployment = (await get('/api/v1/deployment')) ?? store.deployment;
    changed();
  };
  source.addEventListener('epoch', (event) => add(JSON.parse(event.data)));
  source.addEventListener('amendment', (event) => amended.add(JSON.parse(event.data).epoch));
  source.onerror = () => {
    store.link = 'lost';
    changed();
    // The browser tries again by itself, unless the answer was not a stream.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
  };
}

function add(epoch) {
  const last = store.epochs.at(-1);
  if (last && epoch.epoch <= last.epoch) {
    if (replaying && store.epochs.some((known) => isSame(known, epoch))) return;
    // Epochs are longer now, or the controller's clock was set back: numbers begin anew.
    store.epochs = [];
  }
  replaying = false;
  store.epochs.push(epoch);
  const most = Math.max(store.deployment?.history ?? 1200, 100);
  if (store.epochs.length > most * 1.1) store.epochs.splice(0, store.epochs.length - most);
  changed();
}

/** Epochs of whose losses a later one has shown something since they were asked for. */
const amended = new Set();

/** Epochs that may be reported between what was received and what is asked for. */
const MEANWHILE = 100;

/**
 * Asks anew for epochs whose losses were amended. They can't be subtracted here: a stream that begins
 * with past epochs has amendments in their numbers, and sends them as well.
 */
async function askAmended() {
  const first = store.epochs.findIndex((epoch) => amended.has(epoch.epoch));
  const wanted = [...amended];
  amended.clear();
  if (first < 0) return;
  const last = store.epochs.length - first + MEANWHILE;
  const epochs = await get(`/api/v1/epochs?view=summary&last=${last}`);
  if (!epochs) wanted.forEach((epoch) => amended.add(epoch));
  const newer = new Map(epochs?.map((epoch) => [epoch.epoch, epoch]));
  store.epochs = store.epochs.map((known) => {
    const epoch = newer.get(known.epoch);
    return epoch && isSame(known, epoch) ? epoch : known;
  });
}

function isSame(known, epoch) {
  return known.epoch === epoch.epoch && known.start_unix_ns === epoch.start_unix_ns;
}

async function refresh() {
  if (!document.hidden) {
    await ask();
    changed();
  }
  setTimeout(refresh, REFRESH_MS);
}

async function ask() {
  await askAmended();
  const last = Math.max(windowEpochs().length, 1);
  const newest = store.epochs.at(-1)?.epoch;
  const wanted = store.kept ?? newest;
  const known = store.report?.epoch === wanted;
  const [edges, topology, systems, victims, report] = await Promise.all([
    get('/api/v1/edges'),
    get('/api/v1/topology'),
    get('/api/v1/systems'),
    get(`/api/v1/victims?last=${last}&limit=50`),
    wanted == null || known ? store.report : get(`/api/v1/epochs/${wanted}`),
  ]);
  store.edges = edges ?? store.edges;
  store.topology = topology ?? store.topology;
  store.systems = systems ?? store.systems;
  await askSystems();
  store.victims = victims ?? store.victims;
  // A kept epoch may be forgotten meanwhile, and the reader may want another one by now.
  if (report && (store.kept == null || store.kept === report.epoch)) store.report = report;
}

/** Asks for the latest report of every system that has panels, where there is a newer one. */
async function askSystems() {
  const shown = store.systems.filter((system) => system.on && system.panels.length > 0);
  const newer = shown.filter((system) => system.last_epoch != null
    && store.reports[system.system]?.epoch !== system.last_epoch);
  await Promise.all(newer.map(async ({ system }) => {
    const reports = await get(`/api/v1/${system}/epochs?last=1`);
    if (reports?.length) [store.reports[system]] = reports;
  }));
}
