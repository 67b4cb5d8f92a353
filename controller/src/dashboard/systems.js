// Panels that measurement systems bring: each a module whose `draw(element, report)` fills a card
// from the system's latest report, which is null as long as there is none.

import { el, nothing, replace } from './dom.js';
import { store } from './store.js';

/** Panels by the path of their module. */
const panels = new Map();

/** Draws the panels of all systems that run; `changed` is called when one has been loaded. */
export function systemPanels(element, changed) {
  const shown = store.systems.filter((system) => system.on)
    .flatMap((system) => system.panels.map((panel) => ({ ...panel, system: system.system })));
  const cards = shown.map((panel) => known(panel, changed));
  if (cards.some((card, index) => element.children[index] !== card.root)
    || element.children.length !== cards.length) {
    element.replaceChildren(...cards.map((card) => card.root));
  }
  cards.forEach((card, index) => draw(card, store.reports[shown[index].system] ?? null));
}

function known(panel, changed) {
  const card = panels.get(panel.script);
  if (card) return card;
  const about = el('small', '');
  const body = el('div', '', nothing('Loading.'));
  const root = el('section', 'card', el('h2', '', `${panel.title} `, about), body);
  root.dataset.panel = `${panel.system}/${panel.name}`;
  const created = { root, about, body, module: null, drawn: undefined };
  panels.set(panel.script, created);
  import(panel.script).then((module) => {
    created.module = module;
    changed();
  }, (problem) => failed(created, problem));
  return created;
}

function draw(card, report) {
  if (!card.module || card.drawn === report) return;
  card.drawn = report;
  card.about.textContent = report ? `${report.system}, epoch ${report.epoch}${
    report.complete ? '' : `, incomplete: ${report.incomplete_because.join('; ')}`}` : '';
  try {
    card.module.draw(card.body, report);
  } catch (problem) {
    failed(card, problem);
  }
}

function failed(card, problem) {
  console.error(problem);
  replace(card.body, nothing(`This panel can't be shown: ${problem.message}`));
}
