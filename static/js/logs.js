/* The log page: lines arrive at the end, at most 500 stay in the page; filters, pause, and the way back to the newest. */
import { announce, storage } from './dom.js';
import { live } from './live.js';

const IN_PAGE = 500;
const HELD = 5_000;
const TYPING_MS = 250;
const NEAR = 24; // pixels from the end that still count as the end

const page = document.querySelector('[data-log-page]');
const part = (name) => page.querySelector(`[data-log-${name}]`);
const form = part('filter');
const ranks = [...form.level.options].map((option) => option.value); // "" first, then from the least grave on

/* What arrived and is not shown: while paused, or while the reader looks at older lines. Oldest first. */
let held = [];
let lost = 0; // of those, fallen out of the page's memory; the database has them
let paused = false;
let recent = []; // what came last, whatever the filter: a list that is fetched may be older than it
let frame = 0;
let fetching = null;

const box = () => part('box');
const list = () => part('lines');
const atEnd = () => box().scrollHeight - box().scrollTop - box().clientHeight < NEAR;
const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;

function matches(row) {
  const { level, source, text } = form;
  if (level.value && ranks.indexOf(row.level) < ranks.indexOf(level.value)) return false;
  if (source.value && row.from !== source.value) return false;
  const words = text.value.trim().toLowerCase();
  return !words || row.text.toLowerCase().includes(words) || row.source.toLowerCase().includes(words);
}

function element(row) {
  const line = part('row').content.firstElementChild.cloneNode(true);
  const slot = (name) => line.querySelector(`[data-part="${name}"]`);
  line.dataset.seq = row.seq;
  slot('at').dateTime = row.at;
  slot('at').textContent = row.at;
  slot('level').textContent = row.level;
  if (ranks.includes(row.level)) slot('level').classList.add(row.level);
  slot('source').textContent = row.source;
  slot('text').textContent = row.text;
  if (row.href?.startsWith('/calls/')) slot('call').href = row.href;
  else slot('call').remove();
  return line;
}

function receive(rows) {
  recent = [...recent, ...rows].slice(-IN_PAGE);
  hold(rows.filter(matches));
}

function hold(rows) {
  if (!rows.length) return;
  held.push(...rows);
  if (held.length > HELD) lost += held.splice(0, held.length - HELD).length;
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    if (!paused && atEnd()) flush();
    tell();
  });
}

/* Everything that waits, into the page; what is more than the page holds is still in the database. */
function flush() {
  const rows = held.splice(0);
  const skipped = lost + Math.max(0, rows.length - IN_PAGE);
  lost = 0;
  list().append(...rows.slice(-IN_PAGE).map(element));
  const lines = list().children;
  const over = lines.length - IN_PAGE;
  for (let index = 0; index < over; index += 1) lines[0].remove();
  part('none').hidden = lines.length > 0;
  if (over > 0) note(`The newest ${IN_PAGE} lines are shown${skipped ? `; ${plural(skipped, 'line')} in between went by unseen` : ''}. Reload to see older lines.`);
  box().scrollTop = box().scrollHeight;
  if (rows.length) announce(plural(rows.length, 'new line'));
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
  part('newer').textContent = `${plural(count, 'newer line')}`;
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
  const url = query.size ? `?${query}` : location.pathname;
  fetching?.abort();
  const mine = (fetching = new AbortController());
  const response = await fetch(url, { headers: { Accept: 'text/html' }, signal: mine.signal });
  if (!response.ok || response.redirected) return; // signed out: the live pill says so
  const fresh = new DOMParser().parseFromString(await response.text(), 'text/html').getElementById('log');
  if (!fresh || mine.signal.aborted) return;
  history.replaceState(null, '', url);
  document.getElementById('log').replaceChildren(...document.importNode(fresh, true).childNodes);
  const head = Number(list().dataset.logHead);
  held = recent.filter((row) => row.seq > head && matches(row));
  lost = 0;
  note('');
  flush();
  tell();
}

const reloadNow = () => reload().catch((problem) => problem.name !== 'AbortError' && note('The filter could not be applied. Try again.'));

function textOf(line) {
  const words = [...line.children].map((child) => (child instanceof HTMLTimeElement ? child.dateTime : child.textContent));
  return words.map((word) => word.trim().replace(/\s*Its call$/, '')).join(' ');
}

async function copy() {
  const lines = [...list().children].map(textOf);
  try {
    await navigator.clipboard.writeText(`${lines.join('\n')}\n`);
    note(`Copied ${plural(lines.length, 'line')}.`);
  } catch {
    getSelection().selectAllChildren(list()); // plain http on a LAN address has no clipboard API
    note('The browser blocked copying. The lines are selected: press Ctrl+C.');
  }
}

function startLive() {
  live.on(page.dataset.logTopic, 'line', (message) => receive(message.rows ?? []));
  live.on(page.dataset.logTopic, 'reload', reloadNow);
  part('pause').hidden = false;
  part('pause').addEventListener('click', () => setPaused(!paused));
  page.addEventListener('click', (event) => event.target.closest('[data-log-jump]') && jump());
  page.addEventListener('scroll', () => !paused && held.length && atEnd() && (flush(), tell()), { capture: true, passive: true });
  document.addEventListener('keydown', (event) => {
    const typing = event.target.matches?.('input, textarea, select') || document.querySelector('dialog[open]');
    if (event.key !== 'l' || event.ctrlKey || event.metaKey || event.altKey || typing || storage('single-keys') === 'off') return;
    jump();
  });
  box().scrollTop = box().scrollHeight;
}

let timer = 0;
form.addEventListener('submit', (event) => {
  if (!page.dataset.liveTopic) return; // older lines: a new page
  event.preventDefault();
  reloadNow();
});
form.addEventListener('change', (event) => event.target !== form.text && form.requestSubmit());
form.text.addEventListener('input', () => {
  clearTimeout(timer);
  timer = setTimeout(() => form.requestSubmit(), TYPING_MS);
});
part('copy').hidden = false;
part('copy').addEventListener('click', copy);
if (page.dataset.liveTopic) startLive();
