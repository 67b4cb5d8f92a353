// The dashboard's panel of hops: where packets were lost in the latest window.

import { el, flowButton, nothing, replace, table } from '/dashboard/dom.js';
import { count } from '/dashboard/format.js';

const FLOWS_SHOWN = 20;

/** Exact, between bounds, or at least so many. */
function number({ lost, at_least: least, at_most: most }) {
  if (lost != null) return count(lost);
  return most == null ? `≥ ${count(least)}` : `${count(least)}–${count(most)}`;
}

function place({ from, to }) {
  return `${from} → ${to}`;
}

/** Fills the panel from a report, which is null before the first. */
export function draw(element, report) {
  if (!report) return replace(element, nothing('Shown with the first window.'));
  if (!report.losses) {
    return replace(element, nothing('Not known: an edge did not deliver all of the window, or the '
      + 'controller has no [topology].'));
  }
  if (report.lost_at.length === 0 && report.losses.length === 0) {
    return replace(element, nothing('No packet was lost between the switches.'));
  }
  const places = report.lost_at.map((lost) => ({ cells: [place(lost.place), number(lost)] }));
  const flows = report.losses.slice(0, FLOWS_SHOWN).map((lost) => ({ cells: [
    flowButton(lost), number(lost), lost.places?.map(place).join(' or ') ?? 'not known',
  ] }));
  const rest = report.losses.length - flows.length;
  return replace(element,
    el('div', 'places', table([['between', 'name'], ['lost', 'number']], places)),
    el('div', 'scroll', table([['flow', ''], ['lost', 'number'], ['between', 'name']], flows)),
    ...(rest > 0 ? [nothing(`and ${count(rest)} more flows`)] : []));
}
