/* The audit log: a page further down counts what came since, and an event opens beside the list without leaving its place. */
import { announce } from './dom.js';
import { live } from './live.js';

const notice = document.querySelector('[data-new-events]');
let count = 0;

if (notice) {
  live.on(notice.dataset.liveTopic, 'event', (frame) => {
    count += frame.rows?.length ?? 0;
    if (!count) return;
    notice.querySelector('[data-slot="count"]').textContent = count === 1 ? '1 new event' : `${count} new events`;
    notice.hidden = false;
  });
}

const place = document.querySelector('[data-event-place]');
const wide = matchMedia('(min-width: 1101px)');

function drawer() {
  return document.getElementById('event');
}

function selOf(address) {
  return new URL(address, location.href).searchParams.get('sel');
}

/* The list as it is filtered now, with this event chosen; without one, with none. */
function addressOf(sel) {
  const query = new URLSearchParams(location.search);
  if (sel === null) query.delete('sel');
  else query.set('sel', sel);
  return `${location.pathname}${query.size ? `?${query}` : ''}`;
}

function rowOf(sel) {
  const links = [...place.querySelectorAll('.audit-log tbody a[href]')];
  return links.find((link) => selOf(link.href) === sel)?.closest('tr') ?? null;
}

function mark(sel) {
  for (const row of place.querySelectorAll('tr[aria-selected]')) row.removeAttribute('aria-selected');
  if (sel !== null) rowOf(sel)?.setAttribute('aria-selected', 'true');
}

async function show(sel) {
  const response = await fetch(addressOf(sel), { headers: { Accept: 'text/html' } });
  if (!response.ok || response.redirected) throw new Error('another page');
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  const fresh = page.getElementById('event');
  if (!fresh) throw new Error('no such event');
  keepInPlace(rowOf(sel), () => {
    drawer()?.remove();
    place.append(document.adoptNode(fresh));
    place.classList.add('split', 'has-drawer');
    mark(sel);
  });
  announce(fresh.querySelector('h2')?.textContent.trim() ?? 'Event');
}

function hide(sel) {
  const row = rowOf(sel);
  keepInPlace(row, () => {
    drawer()?.remove();
    place.classList.remove('split', 'has-drawer');
    mark(null);
  });
  row?.querySelector('a')?.focus({ preventScroll: wide.matches });
}

/* The list grows narrower or wider, so its rows change their height: this one stays where it was on the screen. */
function keepInPlace(row, change) {
  const before = row?.getBoundingClientRect().top;
  change();
  if (row && wide.matches) scrollBy({ top: row.getBoundingClientRect().top - before, behavior: 'instant' });
}

async function choose(sel) {
  try {
    await show(sel);
  } catch {
    location.assign(addressOf(sel)); // signed out or offline: the browser shows it
    return;
  }
  history.pushState(null, '', addressOf(sel));
  if (!wide.matches) drawer().scrollIntoView();
  drawer().querySelector('[data-close-event]')?.focus({ preventScroll: true });
}

function close() {
  const sel = selOf(location.href);
  history.pushState(null, '', addressOf(null));
  hide(sel);
}

if (place) {
  place.addEventListener('click', (event) => {
    const link = event.target.closest('a[href]');
    if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (link.matches('[data-close-event]')) {
      event.preventDefault();
      close();
    } else if (link.closest('.audit-log tbody') && selOf(link.href) !== null) {
      event.preventDefault();
      choose(selOf(link.href));
    }
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || event.defaultPrevented || !drawer()) return;
    if (document.querySelector('dialog[open], [data-bs-toggle][aria-expanded="true"], details[data-pop][open]')) return;
    close();
  });
  let shown = selOf(location.href);
  addEventListener('popstate', () => {
    const sel = selOf(location.href);
    if (sel !== null) show(sel).catch(() => location.reload());
    else if (drawer()) hide(shown);
    shown = sel;
  });
  /* Beside the list, the chosen row is what must be in sight; below it, on narrow windows, the address leads to the details. */
  if (wide.matches) {
    addEventListener('load', () => document.querySelector('tr[aria-selected=true]')?.scrollIntoView({ block: 'nearest' }));
  }
}
