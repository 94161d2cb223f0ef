/* The explorer: chart and facets are loaded after the list, a row opens beside it, and the list follows new events. */
import { whileBusy } from './busy.js';
import { announce, number, reasonOf } from './dom.js';
import { live } from './live.js';
import { startCompletion } from './query-completion.js';
import { send, SignedOut } from './sign-in.js';
import { moment, stackedBars } from './time-chart.js';
import { chosenZone, momentOf, wallClock, zone } from './time.js';
import { toast } from './toast.js';

const GIVE_UP_MS = 30_000;
const EACH_MS = 2_000; // at most one look for newer rows in this time
const WITHOUT_HINTS_MS = 10_000;
const CHART_MS = 30_000;
const SCROLLER = '.scroll';

const page = document.querySelector('[data-explorer]');
const main = document.getElementById('explorer-main');
const form = page.querySelector('[data-query-form]');
const wide = matchMedia('(min-width: 1101px)');

const results = () => page.querySelector('[data-results]');
const drawer = () => document.getElementById('detail');
const chosen = () => new URLSearchParams(location.search).get('sel');

/* Automatic requests never prompt for a sign-in. */
const unasked = (address, init) => fetch(address, { ...init, signal: AbortSignal.timeout(GIVE_UP_MS) });

async function fetched(address, type = 'text/html', how = unasked) {
  const response = await how(address, { headers: { Accept: type } });
  if (response.redirected || response.status === 401) throw new SignedOut('You are signed out. Reload the page to sign in.');
  if (!response.ok) throw Object.assign(new Error(`mcpadmin answered with HTTP ${response.status}. Reload the page to try again.`), { status: response.status });
  return response;
}

/* Says what could not be loaded, why, and what to do. The page stays as it is. */
function complain(title, problem) {
  const { status } = problem;
  if (status === 404) return toast({ tone: 'bad', title, text: 'It is no longer stored. Reload the page for the current rows.' });
  return toast({ tone: 'bad', title, text: status ? `mcpadmin answered with HTTP ${status}. Nothing else changed. Try again.` : reasonOf(problem) });
}

async function fragment(address, how) {
  const text = await (await fetched(address, 'text/html', how)).text();
  return new DOMParser().parseFromString(text, 'text/html').body;
}

/* --- address ------------------------------------------------------------------------------------------------------ */
function addressWith(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) query.delete(name);
    else query.set(name, value);
  }
  return `${location.pathname}${query.size ? `?${query}` : ''}`;
}

function goTo(from, to, rest) {
  const q = `since:${moment(from)} until:${moment(to)} ${rest}`.trim();
  location.assign(addressWith({ q, cursor: null, sel: null }));
}

/* --- chart and facets --------------------------------------------------------------------------------------------- */
/* The focus in a part that is about to be replaced; returns a function that restores it. */
function placeIn(part) {
  const focused = part.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  const { scrollLeft: left, scrollTop: top } = part.querySelector(SCROLLER) ?? {};
  return () => {
    if (left || top) part.querySelector(SCROLLER)?.scrollTo({ left, top, behavior: 'instant' });
    if (focused) part.querySelector(focused)?.focus({ preventScroll: true });
  };
}

let chart = null;
let chartData = null; // what the chart shows now
const zoom = (from, to) => goTo(from, to, chartData.rest);

async function loadChart() {
  const place = document.getElementById('histogram');
  if (!place) return;
  try {
    const body = document.adoptNode(await whileBusy(place, fragment(place.dataset.histogramFrom + location.search), 'Loading the chart…'));
    const goBack = placeIn(place);
    const open = place.querySelector('.chart-table')?.open ?? false;
    const fresh = body.querySelector('[data-chart]');
    const data = (chartData = JSON.parse(fresh.dataset.chart));
    if (chart && data.series.length) { // the same chart: someone may be dragging over it
      const drawn = place.querySelector('[data-chart]');
      drawn.setAttribute('aria-label', fresh.getAttribute('aria-label'));
      fresh.replaceWith(drawn);
    }
    place.replaceChildren(...body.childNodes);
    place.querySelector('.chart-table').open = open;
    goBack();
    const slot = place.querySelector('[data-chart]');
    if (data.series.length) {
      if (chart) chart.update(data);
      else chart = stackedBars(slot, data, { onRange: zoom, onBar: zoom });
      place.querySelector('[data-drag-hint]').hidden = false;
    } else { // no room for bars that do not exist
      chart = null;
      slot.classList.add('none');
      slot.textContent = 'No rows in this range.';
      place.querySelector('.chart-table').hidden = true;
    }
  } catch (problem) {
    const slot = place.querySelector('[data-loading]');
    if (slot) slot.textContent = `The chart could not be loaded. ${reasonOf(problem)}`;
  }
}

async function loadFacets() {
  const place = document.getElementById('facets');
  if (!place) return;
  try {
    const body = await whileBusy(place, fragment(place.dataset.facetsFrom + location.search), 'Loading the filters…');
    const open = place.querySelector('details')?.open ?? wide.matches;
    const goBack = placeIn(place);
    place.replaceChildren(...document.adoptNode(body).childNodes);
    place.querySelector('details').open = open;
    goBack();
  } catch (problem) {
    if (!place.querySelector('details')) place.textContent = `The filters could not be loaded. ${reasonOf(problem)}`;
  }
}

/* --- range, columns, zone ----------------------------------------------------------------------------------------- */
const since = form.querySelector('[data-range-since]');
const until = form.querySelector('[data-range-until]');

function fillRange() {
  for (const [field, text] of [[since, since.dataset.rangeSince], [until, until.dataset.rangeUntil]]) {
    const date = new Date(text);
    if (text && !Number.isNaN(date.getTime())) field.value = wallClock(date);
  }
  for (const button of form.querySelectorAll('[data-zone-choice]')) {
    button.setAttribute('aria-pressed', String((button.dataset.zoneChoice === 'utc') === (document.documentElement.dataset.utc === 'true')));
  }
  form.querySelector('[data-zone-local]').textContent = `Local (${chosenZone()})`;
  form.querySelector('[data-zone-field]').value = zone();
}

function entered(field) {
  if (!field.value) return null;
  const date = momentOf(field.value);
  return Number.isNaN(date.getTime()) ? null : date;
}

function applyRange() {
  const problem = form.querySelector('[data-range-problem]');
  const [from, to] = [entered(since), entered(until)];
  if (from && to && from >= to) problem.textContent = 'The end must be later than the start.';
  else if (!from && !to) problem.textContent = 'Enter a start, an end, or both.';
  else {
    const parts = [from && `since:${moment(from / 1000)}`, to && `until:${moment(to / 1000)}`, form.dataset.rest];
    location.assign(addressWith({ q: parts.filter(Boolean).join(' '), cursor: null, sel: null }));
    return;
  }
  problem.hidden = false;
}

function applyColumns() {
  const boxes = [...form.querySelectorAll('[data-columns] input')];
  location.assign(addressWith({ cols: boxes.filter((box) => box.checked).map((box) => box.value).join(',') }));
}

form.querySelector('[data-range-apply]').addEventListener('click', applyRange);
form.querySelector('[data-columns-apply]').addEventListener('click', applyColumns);
for (const field of [since, until]) {
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    applyRange();
  });
}
document.addEventListener('click', (event) => {
  if (event.target.closest('[data-zone-choice], [data-zone-switch]')) fillRange();
});
fillRange();
startCompletion(form.querySelector('#query'), page.dataset.complete);

/* --- one row ------------------------------------------------------------------------------------------------------ */
function rowOf(sel) {
  return sel === null ? null : page.querySelector(`tr[data-sel="${CSS.escape(sel)}"]`);
}

function mark(sel) {
  for (const row of page.querySelectorAll('tr[aria-selected]')) row.removeAttribute('aria-selected');
  rowOf(sel)?.setAttribute('aria-selected', 'true');
}

/* The list's width changes, and with it the height of its rows: keep this one where it was on the screen. */
function keepInPlace(row, change) {
  const before = row?.getBoundingClientRect().top;
  change();
  if (row && wide.matches) scrollBy({ top: row.getBoundingClientRect().top - before, behavior: 'instant' });
}

function neighbour(step) {
  const rows = [...page.querySelectorAll('tr[data-sel]')];
  const at = rows.findIndex((row) => row.dataset.sel === chosen());
  return rows[at + step] ?? null;
}

function equipDrawer() {
  for (const [name, by] of [['previous', -1], ['next', 1]]) {
    const button = drawer()?.querySelector(`[data-${name}-row]`);
    if (button) Object.assign(button, { hidden: false, disabled: neighbour(by) === null });
  }
}

/* `wanted()`: whether it is still wanted when it arrives. */
async function show(sel, wanted) {
  const [stream, key] = sel.split('.');
  const address = page.dataset.row.replace('/stream/0/', `/${encodeURIComponent(stream)}/${encodeURIComponent(key)}/`);
  const query = new URLSearchParams(location.search);
  query.set('sel', sel);
  const fresh = (await fragment(`${address}?${query}`, send)).querySelector('#detail');
  if (!wanted()) return;
  if (!fresh) throw Object.assign(new Error('there is no such row'), { status: 404 });
  keepInPlace(rowOf(sel), () => {
    drawer()?.remove();
    main.append(document.adoptNode(fresh));
    htmx.process(fresh);
    main.classList.add('has-drawer');
    mark(sel);
  });
  equipDrawer();
  announce(fresh.querySelector('h2')?.textContent.trim() ?? 'Details');
}

function hide(sel) {
  const row = rowOf(sel);
  keepInPlace(row, () => {
    drawer()?.remove();
    main.classList.remove('has-drawer');
    mark(null);
  });
  row?.querySelector('a')?.focus({ preventScroll: wide.matches });
}

let choosing = 0;
async function choose(sel, { focus = true } = {}) {
  const address = addressWith({ sel });
  const first = chosen() === null;
  choosing += 1;
  const turn = choosing;
  const wanted = () => turn === choosing;
  try {
    await whileBusy(drawer() ?? document.getElementById('explorer-list'), show(sel, wanted), 'Loading the row…');
  } catch (problem) {
    if (wanted()) complain('The row could not be loaded', problem);
    return;
  }
  if (!wanted()) return;
  history[first ? 'pushState' : 'replaceState'](null, '', address);
  shown = sel;
  equipDrawer();
  if (!wide.matches) drawer().scrollIntoView();
  if (focus) drawer().querySelector('[data-close-detail]')?.focus({ preventScroll: true });
}

function close() {
  const sel = chosen();
  choosing += 1; // a row that is still loading stays closed too
  history.pushState(null, '', addressWith({ sel: null }));
  shown = null;
  hide(sel);
}

function step(by) {
  const row = neighbour(by);
  if (!row) return;
  choose(row.dataset.sel, { focus: false }).then(() => {
    row.scrollIntoView({ block: 'nearest' });
    drawer()?.querySelector(by < 0 ? '[data-previous-row]' : '[data-next-row]')?.focus({ preventScroll: true });
  });
}

function focusRow(by) {
  const links = [...page.querySelectorAll('tr[data-sel] td:nth-of-type(2) a, tr[data-sel] td:first-of-type a')];
  if (!links.length) return;
  const at = links.findIndex((link) => link.closest('tr').contains(document.activeElement));
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1)];
  next.focus();
  next.scrollIntoView({ block: 'nearest' });
}

function plain(event) {
  return !event.defaultPrevented && !event.button && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
}

function selOf(link) {
  return new URL(link.href, location.href).searchParams.get('sel');
}

main?.addEventListener('click', (event) => {
  const link = event.target.closest('a[href^="?"]');
  if (link && plain(event)) {
    if (link.matches('[data-close-detail]')) {
      event.preventDefault();
      close();
    } else if (selOf(link) !== null && link.closest('tr[data-sel], #detail')) {
      event.preventDefault();
      choose(selOf(link));
    }
    return;
  }
  if (event.target.closest('[data-previous-row]')) step(-1);
  if (event.target.closest('[data-next-row]')) step(1);
});

/* Arrow keys move through the rows; beside an open row, they open the next one. */
document.addEventListener('keydown', (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  if (document.querySelector('dialog[open], [data-bs-toggle][aria-expanded="true"], details[data-pop][open]')) return;
  const typing = event.target.closest?.('input, textarea, select, [role=tab], pre');
  if (event.key === 'Escape' && drawer() && !event.target.closest?.('input')) close();
  else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && !typing) {
    const by = event.key === 'ArrowDown' ? 1 : -1;
    if (drawer() && wide.matches) step(by);
    else if (page.contains(event.target) || event.target === document.body) focusRow(by);
    else return;
    event.preventDefault();
  }
});

let shown = chosen();
addEventListener('popstate', () => {
  const sel = chosen();
  choosing += 1;
  if (sel !== null) {
    const turn = choosing;
    show(sel, () => turn === choosing).catch((problem) => complain('The row could not be loaded', problem));
  }
  else if (drawer()) hide(shown);
  shown = sel;
});
if (wide.matches) rowOf(shown)?.scrollIntoView({ block: 'nearest' });
equipDrawer();

/* --- following ---------------------------------------------------------------------------------------------------- */
let following = true;
let timer = 0;
let last = Date.now();
let charted = Date.now();
let charting = 0;

const followable = () => results()?.hasAttribute('data-followable') ?? false;
const atTop = () => (results()?.getBoundingClientRect().top ?? 0) > -40;

function dress() {
  const button = results()?.querySelector('[data-follow]');
  if (!button) return;
  button.hidden = false;
  button.setAttribute('aria-pressed', String(following));
  button.querySelector('.dot').classList.toggle('off', !following);
  button.title = following ? 'New rows appear as they arrive' : 'Paused: new rows are counted';
}

async function count() {
  const query = new URLSearchParams(location.search);
  query.set('newest', results().dataset.newest);
  const { count: newer, more } = await (await fetched(`${page.dataset.newer}?${query}`, 'application/json')).json();
  const button = results().querySelector('[data-show-newer]');
  if (newer) button.querySelector('[data-slot=count]').textContent = `${number(newer)}${more ? '+' : ''} newer`;
  button.hidden = !newer;
  return newer;
}

/* A selector for the same element in the part that replaces this one. */
function nameOf(element) {
  if (element.localName === 'summary') return 'summary';
  const row = element.closest('tr[data-sel]');
  if (row) return `tr[data-sel="${CSS.escape(row.dataset.sel)}"] a`;
  const mark = [...element.attributes].find(({ name }) => name.startsWith('data-'));
  if (mark) return `[${mark.name}]`;
  return element.matches(SCROLLER) ? SCROLLER : `a[href="${CSS.escape(element.getAttribute('href') ?? '')}"]`;
}

async function refresh(how) {
  const before = new Set([...page.querySelectorAll('tr[data-sel]')].map((row) => row.dataset.sel));
  const body = await fragment(page.dataset.rows + location.search, how);
  const list = document.getElementById('explorer-list');
  const goBack = placeIn(list);
  list.replaceChildren(...document.adoptNode(body).childNodes);
  dress();
  mark(chosen());
  let added = 0;
  for (const row of list.querySelectorAll('tr[data-sel]')) {
    if (before.has(row.dataset.sel)) continue;
    added += 1;
    if (before.size) row.classList.add('new');
  }
  goBack();
  if (added) announce(added === 1 ? 'One new row' : `${added} new rows`);
  equipDrawer();
  chartSoon();
}

/* At once if the list is empty. */
function chartSoon() {
  const wait = page.querySelector('[data-chart].none') ? 0 : Math.max(0, charted + CHART_MS - Date.now());
  charting ||= setTimeout(() => {
    [charting, charted] = [0, Date.now()];
    loadChart();
    loadFacets();
  }, wait);
}

// One request at a time: a second one, counted before the first showed its rows, would show them again, no longer as new.
let looking = false;
async function look() {
  [timer, last] = [0, Date.now()];
  if (!followable() || document.hidden) return;
  if (looking) {
    lookSoon();
    return;
  }
  looking = true;
  try {
    if (!following || !atTop()) await count();
    else if ((await count()) || page.querySelector('[data-running]')) await refresh();
  } catch {
    /* offline or signed out: the live pill says so, and the next hint tries again */
  } finally {
    looking = false;
  }
}

function lookSoon() {
  timer ||= setTimeout(look, Math.max(0, last + EACH_MS - Date.now()));
}

page.addEventListener('click', (event) => {
  if (event.target.closest('[data-follow]')) {
    following = !following;
    dress();
    announce(following ? 'Live' : 'Paused');
    if (following) look();
  } else if (event.target.closest('[data-show-newer]')) {
    whileBusy(document.getElementById('explorer-list'), refresh(send), 'Loading the newer rows…').then(
      () => results().scrollIntoView({ block: 'nearest' }),
      (problem) => complain('The newer rows could not be loaded', problem),
    );
  }
});

if (main) {
  dress();
  loadChart();
  loadFacets();
  live.on('overview', '*', lookSoon);
  setInterval(() => (live.state !== 'live' || results()?.hasAttribute('data-polled')) && lookSoon(), WITHOUT_HINTS_MS);
  document.addEventListener('visibilitychange', () => document.hidden || lookSoon());
}
