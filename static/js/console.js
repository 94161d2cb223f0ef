/* A box that shows the rows of a feed as they arrive, the newest at its end: filters, pause, and the way back to the
   newest. At most 500 rows stay in the page, and a frame adds few of them, so that a flood never stops the page. */
import { announce, storage } from './dom.js';
import { live } from './live.js';

const IN_PAGE = 500;
const HELD = 5_000;
const A_FRAME = { least: 2, first: 8, most: 50 }; // rows that one frame adds
const FRAME_MS = 12; // that one frame may take with style and layout
const TYPING_MS = 250;
const NEAR = 24; // pixels from the end that still count as the end

const CHILDREN = '[data-part="children"] > li';

export const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;

/* `matches(row, form)` is the filter of the page for new rows, `element(row, template)` fills a copy of the row's
   template. `kind` is that of the feed's frames, `noun` what one row is called.
   A row for which `joins(row, form)` is true has no line of its own: `join(row)` puts it to that of another. It returns false
   if that is not in the page yet, and the new element if it made one. `listed(list)` is called for each list that the server made. */
export function openConsole({ page, kind, noun, matches, element, joins = () => false, join = () => false, listed = () => {} }) {
  const part = (name) => page.querySelector(`[data-console-${name}]`);
  const form = part('filter');
  const topic = page.dataset.consoleTopic;
  const base = page.dataset.consoleBase;

  /* What arrived and is not shown: while paused, or while the reader looks at older rows. Oldest first. */
  let held = [];
  let loose = []; // what joins other rows, and is not there yet
  let fresh = 0; // rows shown since the last words for screen readers
  let skipped = 0; // never shown, while a flood is being shown
  let lost = 0; // of those held, fallen out of the page's memory; the database has them
  let paused = false;
  let recent = []; // what came last, whatever the filter: a list that is fetched may be older than it
  let seen = 0; // another reader of the topic may have old rows sent again
  let frame = 0;
  let aFrame = A_FRAME.first; // follows how fast this browser is
  let placed = Infinity; // where the box was last scrolled to its end
  let fetching = null;
  const stop = new AbortController();
  const listening = [];

  const box = () => part('box');
  const list = () => part('rows');
  /* Rows may turn out taller than estimated when they come into sight: who has not scrolled back is still at the end. */
  const atEnd = () => box().scrollTop >= placed || box().scrollHeight - box().scrollTop - box().clientHeight < NEAR;

  function receive(rows) {
    const unseen = rows.filter((row) => row.seq > seen);
    if (!unseen.length) return;
    seen = unseen.at(-1).seq;
    recent = [...recent, ...unseen].slice(-IN_PAGE);
    hold(unseen);
  }

  function hold(rows) {
    for (const row of rows) {
      if (joins(row, form)) loose.push(row);
      else if (matches(row, form)) held.push(row);
    }
    if (held.length > HELD) lost += held.splice(0, held.length - HELD).length;
    if (loose.length > HELD) loose.splice(0, loose.length - HELD);
    if (held.length || loose.length) later();
  }

  function later() {
    frame ||= requestAnimationFrame(work);
  }

  function made(row) {
    const item = part('row').content.firstElementChild.cloneNode(true);
    item.dataset.seq = row.seq;
    element(row, item);
    return item;
  }

  /* One frame's part of what waits, into the page. */
  function work() {
    cancelAnimationFrame(frame);
    frame = 0;
    if (stop.signal.aborted) return;
    const follows = !paused && atEnd();
    const begun = performance.now();
    const shown = follows ? show() : 0;
    const unfinished = !paused && joinRows(begun + FRAME_MS, Math.max(aFrame - shown, 1));
    if (follows) settleAtEnd();
    if (shown === aFrame) {
      const fitting = Math.round((aFrame * FRAME_MS) / (performance.now() - begun + 1));
      aFrame = Math.min(Math.max(fitting, A_FRAME.least), 2 * aFrame, A_FRAME.most);
    }
    if (unfinished || (follows && held.length)) later();
    tell(follows);
  }

  /* What the limit would remove at once never becomes an element; it is still in the database. */
  function show() {
    skipped += lost + held.splice(0, Math.max(0, held.length - IN_PAGE)).length;
    lost = 0;
    const added = document.createDocumentFragment();
    const rows = held.splice(0, aFrame);
    added.append(...rows.map(made));
    list().append(added);
    fresh += rows.length;
    return rows.length;
  }

  /* Whether a row is left for the next frame. What belongs to a row that still waits stays with it. */
  function joinRows(until, most) {
    const rows = loose;
    let room = most;
    loose = [];
    for (const [index, row] of rows.entries()) {
      if (room <= 0 || performance.now() >= until) {
        loose.push(...rows.slice(index));
        return true;
      }
      const joined = join(row);
      if (joined instanceof Element) room -= 1;
      else if (!joined && held.length) loose.push(row);
    }
    return false;
  }

  /* The rows of calls count too: the oldest goes first. */
  function settleAtEnd() {
    const children = list().querySelectorAll(CHILDREN).length;
    const over = list().childElementCount + children - IN_PAGE;
    for (let index = 0; index < over; index += 1) {
      const oldest = list().firstElementChild;
      ((children && oldest.querySelector(CHILDREN)) || oldest).remove();
    }
    part('none').hidden = list().childElementCount > 0;
    if (over > 0) note(`The newest ${IN_PAGE} ${noun}s are shown${skipped ? `; ${plural(skipped, noun)} in between went by unseen` : ''}. Reload to see older ${noun}s.`);
    toEnd();
    if (held.length) return;
    if (fresh) announce(plural(fresh, `new ${noun}`));
    fresh = 0;
    skipped = 0;
  }

  function toEnd() {
    box().scrollTop = box().scrollHeight;
    placed = Math.max(box().scrollTop, 1);
  }

  function catchUp() {
    toEnd();
    work();
  }

  function note(words) {
    part('note').textContent = words;
  }

  function tell(follows = false) {
    const count = held.length + lost;
    const pause = part('pause');
    pause.setAttribute('aria-pressed', String(paused));
    part('held').textContent = count ? ` · ${count} new` : '';
    part('foot').hidden = paused || follows || !count;
    part('newer').textContent = plural(count, `newer ${noun}`);
  }

  function jump() {
    paused = false;
    catchUp();
  }

  function setPaused(value) {
    paused = value;
    if (paused) tell();
    else catchUp();
  }

  /* The database filters, also what is not in the page any more. */
  async function reload() {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    const url = query.size ? `${base}?${query}` : base;
    fetching?.abort();
    const mine = (fetching = new AbortController());
    const response = await fetch(url, { headers: { Accept: 'text/html' }, signal: mine.signal });
    if (!response.ok || response.redirected) return; // signed out: the live pill says so
    const whole = new DOMParser().parseFromString(await response.text(), 'text/html').querySelector('[data-console-list]');
    if (!whole || mine.signal.aborted) return;
    history.replaceState(null, '', url);
    part('list').replaceChildren(...document.importNode(whole, true).childNodes);
    listed(list());
    const head = Number(list().dataset.consoleHead);
    held = [];
    loose = [];
    lost = 0;
    hold(recent.filter((row) => row.seq > head));
    note('');
    catchUp();
  }

  const reloadNow = () => reload().catch((problem) => problem.name !== 'AbortError' && note('The filter could not be applied. Try again.'));

  function startLive() {
    seen = Number(list().dataset.consoleHead);
    listening.push(live.on(topic, kind, (message) => receive(message.rows ?? [])), live.on(topic, 'reload', reloadNow));
    part('pause').hidden = false;
    part('pause').addEventListener('click', () => setPaused(!paused));
    page.addEventListener('click', (event) => event.target.closest('[data-console-jump]') && jump());
    page.addEventListener('toggle', () => (placed = Infinity), true); // who reads an opened row is not at the end
    page.addEventListener('scroll', () => !paused && held.length && atEnd() && later(), { capture: true, passive: true });
    document.addEventListener('keydown', (event) => {
      const typing = event.target.matches?.('input, textarea, select') || document.querySelector('dialog[open]');
      if (event.key !== 'l' || event.ctrlKey || event.metaKey || event.altKey || typing || storage('single-keys') === 'off') return;
      jump();
    }, { signal: stop.signal });
    toEnd();
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

/* The tab of this kind, if the page shows it. */
export function startTab(name, start) {
  const page = document.querySelector(`[data-console-page="${name}"]`);
  if (page) start(page);
}
