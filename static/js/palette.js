/* The palette, which keys.js opens and loads on Ctrl+K: pages from the side bar and the account menu and actions of
   buttons in the shell at once; everything else from the server while the user types. */
import { whileBusy } from './busy.js';
import { csrfToken, fromTemplate } from './dom.js';

const WAIT_MS = 120;
let found = [];
let foundFor = null; // the query that `found` belongs to
let searching = null;
let selected = 0;
let entered = 0;
let timer = 0;
let request = null;

const dialog = () => document.getElementById('palette');
const input = () => dialog().querySelector('input');
const list = () => document.getElementById('palette-list');

/* Pages and buttons have their own icon; results of the server get the icon of their kind. */
const iconIn = (element) => element.querySelector('svg')?.cloneNode(true);

function pages(words) {
  return [...document.querySelectorAll('.side nav a, .side-foot a.dropdown-item')]
    .map((link) => ({ kind: 'Page', label: link.textContent.trim(), hint: '', url: link.href, icon: iconIn(link) }))
    .filter((page) => page.label.toLowerCase().includes(words.toLowerCase()));
}

/* Choosing one clicks the button. */
const BUTTONS = [
  ['Light theme', '[data-theme-choice=light]'],
  ['Dark theme', '[data-theme-choice=dark]'],
  ['System theme', '[data-theme-choice=system]'],
  ['Turn UTC times on or off', '[data-zone-switch]'],
  ['Keyboard shortcuts', '[data-open-dialog=shortcuts]'],
  ['Sign out', '[data-sign-out] [type=submit]'],
];

function buttons(words) {
  return BUTTONS.filter(([label, selector]) => words && label.toLowerCase().includes(words.toLowerCase()) && document.querySelector(selector))
    .map(([label, selector]) => ({ kind: 'Action', label, hint: '', selector, icon: iconIn(document.querySelector(selector)) }));
}

const written = () => input().value.trim();

export function search() {
  clearTimeout(timer);
  searching = look(written());
  return searching;
}

async function look(words) {
  const local = [...pages(words), ...buttons(words)];
  const url = document.querySelector('[data-palette-open]').dataset.paletteUrl;
  foundFor = words;
  selected = 0;
  show(local, url ? 'Searching…' : '');
  if (!url) return;
  request?.abort();
  request = new AbortController();
  try {
    const answered = fetch(`${url}?${new URLSearchParams({ q: words, server: openServer() })}`, { signal: request.signal });
    const response = await whileBusy(list(), answered, 'Searching…');
    if (!response.ok) throw new Error(String(response.status));
    const answer = await response.json();
    show([...local, ...answer.results], '');
  } catch (problem) {
    if (problem.name !== 'AbortError') show(local, 'Server search is not available right now. The pages above still work.');
  }
}

function openServer() {
  return /^\/servers\/([^/]+)\//.exec(location.pathname)?.[1] ?? '';
}

function show(results, note) {
  selected = Math.max(0, results.indexOf(found[selected]));
  found = results;
  list().replaceChildren(...results.map(row));
  dialog().querySelector('[data-palette-note]').textContent = note || (results.length ? '' : 'No results.');
  mark();
}

function row(result, index) {
  const item = document.createElement('li');
  item.id = `palette-${index}`;
  item.setAttribute('role', 'option');
  const label = document.createElement('span');
  label.className = 'ell';
  label.textContent = result.label;
  const hint = document.createElement('span');
  hint.className = 'dim ell';
  hint.textContent = result.hint || result.kind;
  item.append(result.icon ?? fromTemplate(`icon-${result.verb ?? result.kind.toLowerCase()}`) ?? '', label, hint);
  item.addEventListener('click', () => open(result));
  return item;
}

/* Results are this site's own pages; anything else is not followed. */
function open(result) {
  if (result.selector) {
    dialog().close();
    document.querySelector(result.selector)?.click();
    return undefined;
  }
  const url = new URL(result.url, location.href);
  if (url.origin !== location.origin) return undefined;
  if (!result.post) return location.assign(url.href);
  dialog().close(); // a second Enter would send it again
  return send(url, result.uid);
}

function send(url, uid) {
  const form = document.createElement('form');
  form.method = 'post';
  form.action = url.href;
  form.hidden = true;
  for (const [name, value] of Object.entries({ csrfmiddlewaretoken: csrfToken(), ...(uid && { uid }) })) {
    const field = document.createElement('input');
    Object.assign(field, { name, value });
    form.append(field);
  }
  document.body.append(form);
  form.submit();
}

function mark() {
  [...list().children].forEach((item, index) => {
    item.setAttribute('aria-selected', String(index === selected));
    if (index === selected) item.scrollIntoView({ block: 'nearest' });
  });
  if (found.length) input().setAttribute('aria-activedescendant', `palette-${selected}`);
  else input().removeAttribute('aria-activedescendant');
}

function onKey(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) followWords();
  if (step && found.length) {
    event.preventDefault();
    selected = (selected + step + found.length) % found.length;
    mark();
  } else if (event.key === 'Enter') {
    event.preventDefault();
    if (!event.repeat) openSelected();
  }
}

/* A key pressed before the pause after typing has ended applies to the results for these words, not the previous
   ones. */
function followWords() {
  if (written() !== foundFor) search();
}

async function openSelected() {
  followWords();
  entered += 1;
  const [turn, words] = [entered, written()];
  if (!found.length) await searching;
  if (turn === entered && words === written() && dialog().open && found[selected]) open(found[selected]);
}

input().addEventListener('keydown', onKey);
input().addEventListener('input', () => {
  clearTimeout(timer);
  timer = setTimeout(search, WAIT_MS);
});
