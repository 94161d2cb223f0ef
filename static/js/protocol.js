/* The Protocol tab: the messages of one session as they arrive. Each unfolds, and then loads what it says. */
import { openConsole } from './console.js';
import { send } from './sign-in.js';

const HTTP = new Set(['exchange', 'authorization', 'stream_end']);
const TONES = new Set(['ok', 'warn', 'bad']);

function matches(row, { show, direction, text }) {
  const shown = show.value === 'all' || row.kind === 'dropped' || (show.value === 'http' ? HTTP.has(row.kind) : row.is_message);
  if (!shown || (direction.value && row.direction !== direction.value)) return false;
  const words = text.value.trim().toLowerCase();
  return !words || row.method.toLowerCase().includes(words) || row.target.toLowerCase().includes(words);
}

function element(row, item) {
  const slot = (name) => item.querySelector(`[data-part="${name}"]`);
  item.dataset.pair = row.pair;
  item.className = row.direction;
  slot('at').dateTime = row.at;
  slot('at').textContent = row.at;
  for (const name of ['method', 'target', 'word', 'duration', 'size']) slot(name).textContent = row[name];
  slot('id').textContent = row.id ? `#${row.id}` : '';
  if (TONES.has(row.tone)) slot('word').classList.add(row.tone);
}

const { page } = openConsole({ kind: 'message', noun: 'message', matches, element });

async function load(details) {
  const place = details.querySelector('[data-part="details"]');
  if (place.dataset.loaded) return;
  place.dataset.loaded = 'loading';
  place.textContent = 'Loading…';
  try {
    const response = await send(`${page.dataset.wireBase}${details.closest('li').dataset.seq}/`, { headers: { 'HX-Request': 'true' } });
    if (response.status === 404) throw new Error('This message is not recorded any more.');
    if (!response.ok) throw new Error(`The message could not be loaded (${response.status}). Close and open it to try again.`);
    await htmx.swap({ target: place, swap: 'innerHTML', text: await response.text() });
    place.dataset.loaded = 'yes';
    details.scrollIntoView({ block: 'nearest' });
  } catch (problem) {
    place.textContent = problem.message;
    delete place.dataset.loaded;
  }
}

page.addEventListener('toggle', (event) => {
  if (event.target.matches('[data-wire-message]') && event.target.open) load(event.target);
}, true);

/* The request of an answer, and the other way round. */
function mark(item) {
  const pair = item?.dataset.pair;
  for (const other of page.querySelectorAll('[data-console-rows] > li')) {
    other.classList.toggle('paired', Boolean(pair) && other.dataset.pair === pair);
  }
}

for (const kind of ['pointerover', 'focusin']) {
  page.addEventListener(kind, (event) => mark(event.target.closest('[data-console-rows] > li')));
}
