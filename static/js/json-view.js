/* JSON trees and tables (templates/kit/_json.html): search, the selected node and its path, sorting, pages, CSV. All
   state is in the markup, so that a morph of the page leaves nothing behind. */
import { write, writeLater } from './copy.js';
import { announce, number } from './dom.js';

const OPENED_AT_MOST = 1_000;
const FOUND_AT_MOST = 1_000;
const SAID_AT_MOST = 300; // characters
const order = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });
const node = (element) => element?.closest('[data-k], [data-i]');
const isBranch = (element) => element.localName === 'details';

/* --- paths -------------------------------------------------------------------------------------------------------- */
function stepsTo(chosen) {
  const steps = [];
  for (let at = chosen; at; at = node(at.parentElement)) {
    steps.unshift(at.dataset.i === undefined ? JSON.parse(`"${at.dataset.k}"`) : Number(at.dataset.i));
  }
  return steps;
}

/* RFC 6901 */
const pointer = (steps) => steps.map((step) => `/${String(step).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');

/* The normalized path of RFC 9535. */
function jsonPath(steps) {
  const quoted = (name) => `'${JSON.stringify(name).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;
  return `$${steps.map((step) => `[${typeof step === 'number' ? step : quoted(step)}]`).join('')}`;
}

/* Numbers that JavaScript would round stay as they were written. */
function keptNumber(key, value, context) {
  const written = context?.source;
  return typeof value === 'number' && written !== String(value) && JSON.rawJSON && written ? JSON.rawJSON(written) : value;
}

function textAt(view, steps) {
  let value = JSON.parse(view.querySelector('[data-json]').textContent, keptNumber);
  for (const step of steps) value = value[step];
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

function choose(view, chosen) {
  for (const before of view.querySelectorAll('[data-json-tree] .at')) before.classList.remove('at');
  chosen.classList.add('at');
  view.querySelector('[data-json-at]').hidden = false;
  const at = pointer(stepsTo(chosen));
  view.querySelector('[data-json-pointer]').textContent = shown(at);
  say(view, chosen);
  const use = view.querySelector('[data-json-use]');
  if (use) use.href = `${use.dataset.jsonUse}&${new URLSearchParams({ at })}`;
}

/* Characters that hide or move text are copied as they are, and never displayed so. */
const shown = (text) => text.replace(/[^\P{C}\n\t]|\p{Default_Ignorable_Code_Point}/gu, (c) => `[U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}]`);

/* The pointer identifies the node; a screen reader reads its content. */
function say(view, chosen) {
  const count = chosen.querySelector(':scope > summary .c')?.textContent ?? '';
  const state = isBranch(chosen) ? `${count}, ${chosen.open ? 'expanded' : 'collapsed'}` : '';
  const place = chosen.dataset.i === undefined ? '' : `${chosen.dataset.i}: `;
  view.querySelector('[data-json-said]').textContent = `${place}${wordsOf(chosen).trim().slice(0, SAID_AT_MOST)} ${state}`.trim();
}

async function copyChosen(view, what) {
  const chosen = view.querySelector('[data-json-tree] .at');
  if (!chosen) return;
  const steps = stepsTo(chosen);
  const texts = { pointer: () => pointer(steps), path: () => jsonPath(steps), value: () => textAt(view, steps) };
  await copy(view.querySelector(`[data-json-copy=${what}]`), texts[what]);
}

async function copy(button, text, how = write) {
  let words = 'Copied';
  try {
    await how(text());
  } catch (problem) {
    words = `Not copied: ${problem.message}`;
  }
  button.dataset.copied = words;
  announce(words);
  setTimeout(() => delete button.dataset.copied, 1_800);
}

/* --- the tree ----------------------------------------------------------------------------------------------------- */
function reveal(element) {
  for (let at = element.parentElement?.closest('details'); at; at = at.parentElement.closest('details')) at.open = true;
  element.scrollIntoView({ block: 'nearest' });
}

/* A node's own text: its key and, if it is a leaf, its value. */
function wordsOf(element) {
  if (!isBranch(element)) return element.textContent;
  return element.querySelector(':scope > summary > .k')?.textContent ?? '';
}

function find(view, back, fromStart) {
  const words = view.querySelector('[data-json-find]').value.trim().toLowerCase();
  const said = view.querySelector('[data-json-count]');
  const before = view.querySelector('[data-json-tree] .hit');
  before?.classList.remove('hit');
  said.textContent = '';
  if (!words) return;
  const tree = view.querySelector('[data-json-tree]');
  const found = [...tree.querySelectorAll('[data-k], [data-i]')].filter((one) => wordsOf(one).toLowerCase().includes(words));
  const where = tree.dataset.jsonCut === undefined ? '' : ' in the part that is shown';
  if (!found.length) {
    said.textContent = `No match${where}`;
    return;
  }
  const last = fromStart ? -1 : found.indexOf(before);
  const next = (last + (back ? -1 : 1) + found.length + (back && last < 0 ? 1 : 0)) % found.length;
  found[next].classList.add('hit');
  choose(view, found[next]);
  reveal(found[next]);
  const most = found.length > FOUND_AT_MOST ? `more than ${number(FOUND_AT_MOST)}` : number(found.length);
  said.textContent = `${number(next + 1)} of ${most}${where}`;
}

function openAll(view) {
  const closed = [...view.querySelectorAll('[data-json-tree] details:not([open]):not(.jv-s)')];
  for (const one of closed.slice(0, OPENED_AT_MOST)) one.open = true;
  const rest = closed.length - OPENED_AT_MOST;
  announce(rest > 0 ? `Expanded ${number(OPENED_AT_MOST)} nodes. ${number(rest)} are still collapsed.` : 'Expanded all');
  const said = view.querySelector('[data-json-count]');
  said.textContent = rest > 0 ? `${number(rest)} nodes are still collapsed` : '';
}

function closeAll(view) {
  for (const one of view.querySelectorAll('[data-json-tree] > details details')) one.open = false;
  announce('Collapsed all');
}

/* Arrow keys move through the visible nodes, as in any tree. */
function move(view, key) {
  const tree = view.querySelector('[data-json-tree]');
  const seen = [...tree.querySelectorAll('[data-k], [data-i]')].filter((one) => one.checkVisibility({ contentVisibilityAuto: true }) && one.getClientRects().length);
  const chosen = tree.querySelector('.at');
  const at = seen.indexOf(chosen);
  let target = null;
  if (key === 'ArrowDown') target = seen[at + 1];
  else if (key === 'ArrowUp') target = at > 0 ? seen[at - 1] : null;
  else if (chosen && key === 'ArrowRight' && isBranch(chosen)) {
    if (chosen.open) target = chosen.querySelector('[data-k], [data-i]');
    else chosen.open = true;
  } else if (chosen && key === 'ArrowLeft') {
    if (isBranch(chosen) && chosen.open) chosen.open = false;
    else target = node(chosen.parentElement);
  }
  if (target && tree.contains(target)) {
    choose(view, target);
    target.scrollIntoView({ block: 'nearest' });
  } else if (chosen) say(view, chosen);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */
const rowsOf = (table) => [...table.querySelector('tbody').rows];
const csvText = (cell) => `${cell.dataset.formula === undefined ? '' : "'"}${cell.dataset.csv ?? cell.textContent}`;

function showPage(table, page) {
  const size = Number(table.dataset.page);
  const rows = rowsOf(table);
  const last = Math.max(0, Math.ceil(rows.length / size) - 1);
  const now = Math.min(Math.max(page, 0), last);
  table.dataset.at = String(now);
  rows.forEach((row, index) => {
    row.hidden = Math.floor(index / size) !== now;
  });
  for (const button of table.querySelectorAll('[data-json-page]')) {
    button.disabled = button.dataset.jsonPage === '1' ? now === last : now === 0;
  }
  const said = table.querySelector('[data-json-rows]');
  if (last) said.textContent = `${number(now * size + 1)}–${number(Math.min((now + 1) * size, rows.length))} of ${number(rows.length)} rows`;
}

/* Ascending, descending, then the server's order. Rows without a value stay last. */
function sort(table, heading) {
  const [column, before] = [heading.cellIndex, heading.getAttribute('aria-sort')];
  const rows = rowsOf(table);
  rows.forEach((row, index) => {
    row.dataset.n ??= String(index);
  });
  for (const other of heading.parentElement.cells) other.removeAttribute('aria-sort');
  const next = { ascending: 'descending', descending: null }[before] ?? (before ? null : 'ascending');
  if (next) heading.setAttribute('aria-sort', next);
  const sign = next === 'descending' ? -1 : 1;
  const values = new Map(rows.map((row) => [row, row.cells[column].dataset.csv ?? row.cells[column].textContent]));
  const isNumber = [...values.values()].every((text) => text === '' || text === 'null' || Number.isFinite(Number(text)));
  const empty = (text) => text === '' || text === 'null';
  rows.sort((a, b) => {
    const [one, two] = [values.get(a), values.get(b)];
    const place = Number(a.dataset.n) - Number(b.dataset.n);
    if (!next) return place;
    if (empty(one) || empty(two)) return empty(one) - empty(two) || place;
    return sign * (isNumber ? Number(one) - Number(two) : order.compare(one, two)) || place;
  });
  table.querySelector('tbody').append(...rows);
  showPage(table, 0);
  announce(next ? `Sorted by ${heading.textContent.trim()}, ${next}` : 'In the original order');
}

function showColumn(table, box) {
  const column = Number(box.dataset.jsonColumn);
  const boxes = [...table.querySelectorAll('[data-json-column]')];
  if (!boxes.some((one) => one.checked)) {
    box.checked = true; // one column stays
    announce('At least one column must stay visible');
    return;
  }
  for (const row of table.querySelectorAll('tr')) if (row.cells[column]) row.cells[column].hidden = !box.checked;
}

/* RFC 4180, of the columns shown and of all rows in their order. */
function csv(table) {
  const quote = (text) => `"${text.replaceAll('"', '""')}"`;
  const line = (cells, text) => [...cells].filter((cell) => !cell.hidden).map((cell) => quote(text(cell))).join(',');
  const risky = /^[=+\-@\uff1d\uff0b\uff0d\uff20]/;
  const name = (cell) => (cell.dataset.csv ?? cell.textContent).trim().replace(risky, "'$&");
  return [line(table.querySelector('thead tr').cells, name), ...rowsOf(table).map((row) => line(row.cells, csvText))].join('\r\n');
}

/* For a long table the server generates it, because only some of its rows are here. */
async function copyLongCsv(button) {
  const boxes = [...button.closest('[data-json-table]').querySelectorAll('[data-json-column]:not(:checked)')];
  const hidden = boxes.map((box) => `&hidden=${box.dataset.jsonColumn}`).join('');
  const text = csvFrom(button.dataset.jsonCsvFrom + hidden);
  button.setAttribute('aria-disabled', 'true');
  await copy(button, () => text, writeLater);
  button.removeAttribute('aria-disabled');
}

async function csvFrom(address) {
  const answer = await fetch(address);
  if (!answer.ok || answer.redirected) throw new Error(`mcpadmin answered with HTTP ${answer.status}`);
  return answer.text();
}

/* Other rows were loaded: hidden columns stay hidden, and a button that became disabled passes the focus on. */
function longRowsCame(table) {
  for (const box of table.querySelectorAll('[data-json-column]:not(:checked)')) showColumn(table, box);
  if (!document.activeElement || document.activeElement === document.body || document.activeElement.disabled) table.querySelector('[role=region]').focus();
}

/* --- events ------------------------------------------------------------------------------------------------------- */
function clicked(event) {
  const view = event.target.closest('[data-json-view]');
  if (!view) return;
  const table = event.target.closest('[data-json-table]');
  const on = (selector) => event.target.closest(selector);
  if (on('[data-json-open]')) openAll(view);
  else if (on('[data-json-close]')) closeAll(view);
  else if (on('[data-json-copy]')) copyChosen(view, on('[data-json-copy]').dataset.jsonCopy);
  else if (table && on('[data-json-sort]')) sort(table, on('th'));
  else if (table && on('[data-json-page]')) showPage(table, Number(table.dataset.at ?? 0) + Number(on('[data-json-page]').dataset.jsonPage));
  else if (on('[data-json-csv-from]:not([aria-disabled])')) copyLongCsv(on('[data-json-csv-from]'));
  else if (table && on('[data-json-csv]')) copy(on('[data-json-csv]'), () => csv(table));
  else if (on('[data-json-tree]') && node(event.target)) choose(view, node(event.target));
}

function pressed(event) {
  const view = event.target.closest?.('[data-json-view]');
  if (!view || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.target.matches('[data-json-find]') && event.key === 'Enter') {
    event.preventDefault();
    find(view, event.shiftKey, false);
  } else if (event.target.closest('[data-json-tree]') && event.key.startsWith('Arrow')) {
    event.preventDefault();
    move(view, event.key);
  } else if (event.target.matches('[data-json-tree]') && event.key === 'Enter') {
    const chosen = event.target.querySelector('.at');
    if (!chosen || !isBranch(chosen)) return;
    chosen.open = !chosen.open;
    say(view, chosen);
  }
}

document.addEventListener('click', clicked);
document.addEventListener('keydown', pressed);
document.addEventListener('input', (event) => {
  if (event.target.matches('[data-json-find]')) find(event.target.closest('[data-json-view]'), false, true);
});
document.addEventListener('change', (event) => {
  if (event.target.matches('[data-json-column]')) showColumn(event.target.closest('[data-json-table]'), event.target);
});
document.addEventListener('htmx:after:swap', (event) => {
  const table = event.target.closest?.('[data-long-table]');
  if (table) longRowsCame(table);
});
document.addEventListener('focusin', (event) => {
  const view = event.target.closest('[data-json-view]');
  if (view && event.target.matches('[data-json-tree] summary') && node(event.target)) choose(view, node(event.target));
});

/* What was typed while this module was loading. */
for (const input of document.querySelectorAll('[data-json-find]')) if (input.value) find(input.closest('[data-json-view]'), false, true);
document.documentElement.dataset.jsonTools = 'ready';
