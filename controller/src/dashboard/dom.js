// The few helpers that write the page. What comes from the network only ever becomes text nodes.

import { PROTOCOLS, endText } from './format.js';

/** An element: `el('td', 'number', text or elements...)`. */
export function el(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** An SVG element with attributes. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A flow as a button that opens its history. */
export function flowButton(flow) {
  const proto = PROTOCOLS[flow.proto];
  const end = (address, port) => {
    const text = endText(address, port, flow.proto);
    // IPv6 is too long for a narrow column: lines may break before a colon.
    const [first, ...rest] = text.split(/(?=:)/);
    return address.includes(':')
      ? el('span', 'end long', first, ...rest.flatMap((part) => [el('wbr'), part]))
      : el('span', 'end', text);
  };
  const button = el('button', 'flow', end(flow.src, flow.sport), el('span', 'to', ' → '),
    end(flow.dst, flow.dport), el('span', 'proto', ` ${proto ?? `proto ${flow.proto}`}`));
  button.type = 'button';
  button.title = 'Show its sizes and losses over time';
  button.dataset.flow = JSON.stringify({
    src: flow.src, dst: flow.dst, sport: flow.sport, dport: flow.dport, proto: flow.proto,
  });
  return button;
}

/** A table; `columns` are `[heading, class]`, `rows` lists of texts or elements. */
export function table(columns, rows) {
  const head = el('tr', '', ...columns.map(([heading, kind]) => {
    const cell = el('th', kind, heading);
    cell.scope = 'col';
    return cell;
  }));
  const body = rows.map((row) => el('tr', row.kind ?? '', ...row.cells.map((content, at) => {
    const cell = el('td', columns[at][1], content ?? '–');
    cell.dataset.label = columns[at][0];
    return cell;
  })));
  return el('table', '', el('thead', '', head), el('tbody', '', ...body));
}

/** What is said where there is nothing to show. */
export function nothing(text) {
  return el('p', 'nothing', text);
}

/**
 * Replaces what is in a panel, but leaves the reader where he is: scrolled as far, and with the focus
 * on the same flow.
 */
export function replace(panel, ...children) {
  const scrolled = panel.querySelector('.scroll')?.scrollTop ?? 0;
  const active = document.activeElement;
  const flow = panel.contains(active) ? active.dataset.flow : undefined;
  panel.replaceChildren(...children);
  const scroll = panel.querySelector('.scroll');
  if (scroll) scroll.scrollTop = scrolled;
  if (flow) {
    const buttons = [...panel.querySelectorAll('button.flow')];
    buttons.find((button) => button.dataset.flow === flow)?.focus({ preventScroll: true });
  }
}
