/* A box that shows the rows of a feed as they arrive, the newest at the end: filters, pause, and a button back to the
   newest. So that a flood never freezes the page, each frame adds only a few rows, at most 500 are kept, and they are
   grouped in blocks: the browser skips blocks that are out of sight, and the oldest rows are removed a block at a
   time. */
import { whileBusy } from './busy.js';
import { onChoice } from './choice.js';
import { announce, number, storage } from './dom.js';
import { live } from './live.js';
import { send, SignedOut } from './sign-in.js';
import { paintTime } from './time.js';

const IN_PAGE = 500;
const BLOCK = 50;
const EMPTY_BLOCKS = 40;
const HELD = 5_000;
const A_FRAME = { least: 2, first: 8, most: 50 }; // rows that one frame adds
const FRAME_MS = 16; // ms that one frame may take until it is painted
const TYPING_MS = 250;
const NEAR = 24; // pixels from the end that still count as the end

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? '' : 's'}`;

/* `matches(row, form)` is the page's filter for new rows; `element(row, template)` fills a copy of the row's
   template. `kind` is that of the feed's frames, `noun` the name of a row. A row for which `joins(row, form)` is true
   has no line of its own: `join(row)` adds it to that of another row, and returns false if that one is not in the
   page yet, or the new element if it made one. `listed(list)` is called for each list that the server rendered. */
export function openConsole({ page, kind, noun, matches, element, joins = () => false, join = () => false, listed = () => {} }) {
  const parts = new Map(); // looked up once: the rows are before some of them
  const part = (name) => {
    if (!parts.get(name)?.isConnected) parts.set(name, page.querySelector(`[data-console-${name}]`));
    return parts.get(name);
  };
  const form = part('filter');
  const topic = page.dataset.consoleTopic;
  const base = page.dataset.consoleBase;

  /* Rows that arrived and are not shown yet: while paused, or while the reader looks at older rows. Oldest first. */
  let held = [];
  let loose = []; // rows that join others which are not there yet
  let fresh = 0; // rows shown since the last announcement
  let skipped = 0; // never shown, because they came faster than the page could show them
  let noted = 0; // number of those already announced
  let lost = 0; // number of held rows dropped from the page's memory; the database has them
  let paused = false;
  let recent = []; // number of the last row, regardless of the filter: a list that is fetched may be older
  let seen = 0; // another reader of the topic may cause old rows to be sent again
  let frame = 0; // asked for
  let painting = false; // one was filled and is not painted yet
  let again = false; // the frame after it has work
  let rest = 0; // timer: other work of the page gets as much time as a frame took
  let inPage = 0; // rows, with those of calls
  let aFrame = A_FRAME.first; // follows how fast this browser is
  let placed = Infinity; // where the box was last scrolled to its end
  let fetching = null;
  const stop = new AbortController();
  const listening = [];

  const box = () => part('box');
  const list = () => part('rows');
  /* Rows may be taller than estimated once they come into sight: a reader who has not scrolled back is still at the
     end. */
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
    if (painting) again = true;
    else if (!rest) frame ||= requestAnimationFrame(work);
  }

  function made(row) {
    const item = part('row').content.firstElementChild.cloneNode(true);
    item.dataset.seq = row.seq;
    element(row, item);
    return item;
  }

  /* Before the first layout, because text that time.js writes later would be laid out again. */
  function paintTimes(root) {
    for (const time of root.querySelectorAll('time')) paintTime(time);
  }

  /* Adds one frame's share of the waiting rows to the page. */
  function work() {
    cancelAnimationFrame(frame);
    clearTimeout(rest);
    frame = rest = 0;
    if (stop.signal.aborted) return;
    const follows = !paused && atEnd();
    const begun = performance.now();
    const shown = follows ? show() : 0;
    const unfinished = !paused && joinRows(begun + FRAME_MS, Math.max(aFrame - shown, 1));
    if (follows) settleAtEnd();
    tell(follows);
    again = unfinished || (follows && held.length > 0);
    if (!painting) whenPainted(() => painted(performance.now() - begun, shown === aFrame));
  }

  function whenPainted(then) {
    painting = true;
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = then;
    port2.postMessage(null);
  }

  function painted(took, wasFull) {
    painting = false;
    if (wasFull) aFrame = Math.min(Math.max(Math.round((aFrame * FRAME_MS) / (took + 1)), A_FRAME.least), 2 * aFrame, A_FRAME.most);
    if (!again || frame) return;
    rest = setTimeout(() => {
      rest = 0;
      later();
    }, took);
  }

  /* Rows that the limit would remove at once never become elements; they are still in the database. */
  function show() {
    skipped += lost + held.splice(0, Math.max(0, held.length - IN_PAGE)).length;
    lost = 0;
    const rows = held.splice(0, aFrame);
    for (let from = 0; from < rows.length;) {
      const block = lastBlock();
      const upTo = from + BLOCK - block.childElementCount;
      const added = document.createDocumentFragment();
      added.append(...rows.slice(from, upTo).map(made));
      paintTimes(added);
      block.append(added);
      from = upTo;
    }
    fresh += rows.length;
    inPage += rows.length;
    return rows.length;
  }

  function lastBlock() {
    const last = list().lastElementChild;
    if (last.childElementCount < BLOCK) return last;
    list().append(last.cloneNode(false));
    return list().lastElementChild;
  }

  /* Whether a row is left for the next frame. Rows that belong to a waiting row stay with it. */
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
      if (joined instanceof Element) {
        paintTimes(joined);
        inPage += 1;
        room -= 1;
      } else if (!joined && held.length) loose.push(row);
    }
    return false;
  }

  /* Rows inside calls count too. The oldest are removed first, those of a call before the call itself. An empty block
     is kept for a while: without it, the browser would lay out all blocks after it again. */
  function removeOldest() {
    const first = list().querySelector(':scope > :not([hidden])');
    const children = first.firstElementChild.querySelector(':scope > [data-part="children"]');
    const oldest = children?.childElementCount >= BLOCK ? children : first;
    const range = document.createRange();
    range.setStart(oldest, 0);
    const end = oldest.children[BLOCK];
    if (end) range.setEndBefore(end);
    else range.setEndAfter(oldest.lastChild);
    range.deleteContents();
    first.hidden = !first.childElementCount;
    const empty = list().querySelectorAll(':scope > [hidden]');
    if (empty.length > EMPTY_BLOCKS) for (const block of empty) block.remove();
    count();
  }

  function settleAtEnd() {
    const isFull = inPage > IN_PAGE;
    if (isFull) removeOldest();
    if (isFull || skipped !== noted) {
      noted = skipped;
      note(`At most ${IN_PAGE} ${noun}s stay in this list${skipped ? `; ${plural(skipped, noun)} arrived too fast to be shown` : ''}. Reload to see older ${noun}s.`);
    }
    part('none').hidden = inPage > 0;
    toEnd();
    if (held.length) return;
    if (fresh) announce(plural(fresh, `new ${noun}`));
    fresh = 0;
  }

  function count() {
    inPage = list().querySelectorAll('li[data-seq]').length;
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
    part('held').textContent = count ? ` · ${number(count)} new` : '';
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

  /* The database filters, including what is no longer in the page. */
  async function reload() {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    const url = query.size ? `${base}?${query}` : base;
    fetching?.abort();
    const mine = (fetching = new AbortController());
    const response = await send(url, { headers: { Accept: 'text/html' }, signal: mine.signal });
    if (!response.ok) throw new Error(`mcpadmin answered with HTTP ${response.status}`);
    const whole = new DOMParser().parseFromString(await response.text(), 'text/html').querySelector('[data-console-list]');
    if (!whole || mine.signal.aborted) return;
    if (!page.closest('.wire-pane')) history.replaceState(null, '', url);
    part('list').replaceChildren(...document.importNode(whole, true).childNodes);
    count();
    listed(list());
    const head = Number(list().dataset.consoleHead);
    held = [];
    loose = [];
    lost = skipped = noted = 0;
    hold(recent.filter((row) => row.seq > head));
    note('');
    catchUp();
  }

  const reloadNow = () => whileBusy(part('list'), reload()).catch((problem) => problem.name !== 'AbortError' && note(`The filter could not be applied. The rows below are unchanged. ${problem instanceof SignedOut ? problem.message : 'Try again.'}`));

  function startLive() {
    seen = Number(list().dataset.consoleHead);
    listening.push(live.on(topic, kind, (message) => receive(message.rows ?? [])), live.on(topic, 'reload', reloadNow));
    part('pause').hidden = false;
    part('pause').addEventListener('click', () => setPaused(!paused));
    page.addEventListener('click', (event) => event.target.closest('[data-console-jump]') && jump());
    page.addEventListener('toggle', () => (placed = Infinity), true); // a reader with an opened row is not at the end
    page.addEventListener('scroll', () => !paused && held.length && atEnd() && later(), { capture: true, passive: true });
    document.addEventListener('keydown', (event) => {
      const typing = event.target.matches?.('input, textarea, select') || document.querySelector('dialog[open]');
      if (event.defaultPrevented || event.key !== 'l' || event.ctrlKey || event.metaKey || event.altKey || typing || storage('single-keys') === 'off') return;
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
  /* Older rows are a new page, which would take the focus from a list that is navigated with the arrow keys. */
  const movesOn = (field) => field.localName === 'select' && !page.dataset.liveTopic;
  form.addEventListener('change', ({ target }) => target !== form.text && !movesOn(target) && form.requestSubmit());
  onChoice((select) => form.contains(select) && movesOn(select), () => form.requestSubmit());
  /* Older rows are a new page. It is opened by Enter, because otherwise it would take the focus from a word that is
     being typed. */
  form.text.addEventListener('input', () => {
    clearTimeout(timer);
    if (page.dataset.liveTopic) timer = setTimeout(() => form.requestSubmit(), TYPING_MS);
  });
  count();
  listed(list());
  if (page.dataset.liveTopic) startLive();

  function close() {
    stop.abort();
    clearTimeout(rest);
    clearTimeout(timer);
    fetching?.abort();
    for (const end of listening) end();
  }

  return { page, list, note, close };
}

/* The tab of this kind, if the page has it. */
export function startTab(name, start) {
  const page = document.querySelector(`[data-console-page="${name}"]`);
  if (page) start(page);
}
