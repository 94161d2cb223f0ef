/* A box that shows the rows of a feed as they arrive, the newest at its end: filters, pause, and the way back to the
   newest. At most 500 rows stay in the page. A page may have two of them: its tab, and the pane beside it. */
import { announce, storage } from './dom.js';
import { live } from './live.js';

const IN_PAGE = 500;
const HELD = 5_000;
const TYPING_MS = 250;
const NEAR = 24; // pixels from the end that still count as the end

export const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;

/* `matches(row, form)` is the filter of the page for new rows, `element(row, template)` fills a copy of the row's
   template. `kind` is that of the feed's frames, `noun` what one row is called.
   A row for which `joins(row, form)` is true has no line of its own: `join(row)` puts it to that of another, and says
   whether that is in the page. `listed(list)` is called for each list that the server made. */
export function openConsole({ page, kind, noun, matches, element, joins = () => false, join = () => false, listed = () => {} }) {
  const part = (name) => page.querySelector(`[data-console-${name}]`);
  const form = part('filter');
  const topic = page.dataset.consoleTopic;
  const inPane = page.hasAttribute('data-console-pane');
  const base = page.dataset.consoleBase;

  /* What arrived and is not shown: while paused, or while the reader looks at older rows. Oldest first. */
  let held = [];
  let loose = []; // of those, what joins rows that are not in the page yet
  let lost = 0; // of those held, fallen out of the page's memory; the database has them
  let paused = false;
  let recent = []; // what came last, whatever the filter: a list that is fetched may be older than it
  let seen = 0; // another reader of the topic may have old rows sent again
  let frame = 0;
  let fetching = null;

  const box = () => part('box');
  const list = () => part('rows');
  const atEnd = () => box().scrollHeight - box().scrollTop - box().clientHeight < NEAR;

  function receive(rows) {
    const fresh = rows.filter((row) => row.seq > seen);
    if (!fresh.length) return;
    seen = fresh.at(-1).seq;
    recent = [...recent, ...fresh].slice(-IN_PAGE);
    hold(fresh);
  }

  function hold(rows) {
    for (const row of rows) {
      if (!joins(row, form)) matches(row, form) && held.push(row);
      else if (paused || !join(row)) loose.push(row);
    }
    if (held.length > HELD) lost += held.splice(0, held.length - HELD).length;
    if (loose.length > HELD) loose.splice(0, loose.length - HELD);
    if (!held.length && !loose.length) return;
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      if (!paused && atEnd()) flush();
      tell();
    });
  }

  function made(row) {
    const item = part('row').content.firstElementChild.cloneNode(true);
    item.dataset.seq = row.seq;
    element(row, item);
    return item;
  }

  /* Everything that waits, into the page; what is more than the page holds is still in the database. */
  function flush() {
    const rows = held.splice(0);
    const skipped = lost + Math.max(0, rows.length - IN_PAGE);
    lost = 0;
    const shown = list().children;
    const fitting = rows.slice(-IN_PAGE);
    const over = shown.length + fitting.length - IN_PAGE;
    for (let index = 0; index < over; index += 1) shown[0]?.remove();
    const added = document.createDocumentFragment();
    added.append(...fitting.map(made));
    for (const row of loose.splice(0)) join(row);
    list().append(added);
    part('none').hidden = shown.length > 0;
    if (over > 0) note(`The newest ${IN_PAGE} ${noun}s are shown${skipped ? `; ${plural(skipped, noun)} in between went by unseen` : ''}. Reload to see older ${noun}s.`);
    box().scrollTop = box().scrollHeight;
    if (rows.length) announce(plural(rows.length, `new ${noun}`));
  }

  function note(words) {
    part('note').textContent = words;
  }

  function tell() {
    const count = held.length + lost;
    const pause = part('pause');
    pause.setAttribute('aria-pressed', String(paused));
    part('held').textContent = count ? ` · ${count} new` : '';
    part('foot').hidden = paused || !count;
    part('newer').textContent = plural(count, `newer ${noun}`);
  }

  function jump() {
    paused = false;
    flush();
    tell();
  }

  function setPaused(value) {
    paused = value;
    if (!paused) flush();
    tell();
  }

  /* The database filters, also what is not in the page any more. */
  async function reload() {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    const url = query.size ? `${base}?${query}` : base;
    fetching?.abort();
    const mine = (fetching = new AbortController());
    if (inPane) query.set('pane', '1');
    const response = await fetch(`${base}?${query}`, { headers: { Accept: 'text/html' }, signal: mine.signal });
    if (!response.ok || response.redirected) return; // signed out: the live pill says so
    const fresh = new DOMParser().parseFromString(await response.text(), 'text/html').querySelector('[data-console-list]');
    if (!fresh || mine.signal.aborted) return;
    if (!inPane) history.replaceState(null, '', url);
    part('list').replaceChildren(...document.importNode(fresh, true).childNodes);
    listed(list());
    const head = Number(list().dataset.consoleHead);
    held = [];
    loose = [];
    lost = 0;
    hold(recent.filter((row) => row.seq > head));
    note('');
    flush();
    tell();
  }

  const reloadNow = () => reload().catch((problem) => problem.name !== 'AbortError' && note('The filter could not be applied. Try again.'));

  const stop = new AbortController();
  const listening = [];

  function startLive() {
    seen = Number(list().dataset.consoleHead);
    listening.push(live.on(topic, kind, (message) => receive(message.rows ?? [])), live.on(topic, 'reload', reloadNow));
    part('pause').hidden = false;
    part('pause').addEventListener('click', () => setPaused(!paused));
    page.addEventListener('click', (event) => event.target.closest('[data-console-jump]') && jump());
    page.addEventListener('scroll', () => !paused && held.length && atEnd() && (flush(), tell()), { capture: true, passive: true });
    document.addEventListener('keydown', (event) => {
      const typing = event.target.matches?.('input, textarea, select') || document.querySelector('dialog[open]');
      if (event.key !== 'l' || event.ctrlKey || event.metaKey || event.altKey || typing || storage('single-keys') === 'off') return;
      jump();
    }, { signal: stop.signal });
    box().scrollTop = box().scrollHeight;
  }

  let timer = 0;
  form.addEventListener('submit', (event) => {
    if (!page.dataset.liveTopic) return; // older rows: a new page
    event.preventDefault();
    reloadNow();
  });
  form.addEventListener('change', (event) => event.target !== form.text && form.requestSubmit());
  form.text.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => form.requestSubmit(), TYPING_MS);
  });
  listed(list());
  if (page.dataset.liveTopic) startLive();

  function close() {
    stop.abort();
    fetching?.abort();
    for (const end of listening) end();
  }

  return { page, list, note, close };
}

/* The tab of this kind that the page itself shows, if it does; the pane starts its own. */
export function startTab(name, start) {
  const page = document.querySelector(`[data-console-page="${name}"]:not([data-console-pane])`);
  if (page) start(page);
}
