/* The Protocol tab: the messages of one session as they arrive. A request shares its row with its response and with
   what belongs to its call. A row expands and then loads its content. */
import { openConsole, startTab } from './console.js';
import { outdated, setWord, unfolding } from './wire.js';

const RESPONSES = new Set(['result', 'error']);
const ROW = '[data-console-rows] > ol > li';
const KNOWN = 5_000; // requests whose responses may still come

const isAbout = (row, text) => {
  const words = text.value.trim().toLowerCase();
  return !words || row.method.toLowerCase().includes(words) || row.target.toLowerCase().includes(words);
};

const outcomeOf = (row) => (row.kind === 'error' || row.kind === 'invalid' || row.tone === 'bad' ? 'error' : 'ok');

function chosen(row, { direction, method, text }) {
  if (row.kind === 'dropped') return true;
  if (!row.is_message || (direction.value && row.direction !== direction.value)) return false;
  return (!method.value || row.method === method.value) && isAbout(row, text);
}

export function start(page) {
  const requests = new Map(); // pair -> the row of its request in the page
  const calls = new Map(); // call -> the row of its first request
  const waiting = new Map(); // pair -> a request that is shown once its response has the chosen outcome
  let connection = 0;
  const paired = () => !page.querySelector('[data-console-filter]').order.value;
  const slot = (item, name) => item.querySelector(`:scope > details > summary [data-part="${name}"]`);

  function matches(row, form) {
    if (!chosen(row, form)) return false;
    const { outcome } = form;
    if (!outcome.value || row.kind === 'dropped') return true;
    if (row.kind === 'request') {
      if (outcome.value === 'pending') return true;
      if (paired()) remember(waiting, row.pair, row);
      return false;
    }
    if (row.kind === 'notification') return false;
    return outcome.value === outcomeOf(row);
  }

  function remember(map, key, value) {
    map.set(key, value);
    if (map.size > KNOWN) map.delete(map.keys().next().value);
  }

  function element(row, item) {
    item.dataset.pair = row.pair;
    item.className = row.direction;
    slot(item, 'at').dateTime = row.at;
    direction(slot(item, 'direction'), row.direction === 'sent');
    for (const name of ['method', 'target', 'duration', 'size']) slot(item, name).textContent = row[name];
    slot(item, 'id').textContent = row.id ? `#${row.id}` : '';
    setWord(item, row.word, row.tone);
    if (!paired() || row.kind !== 'request') return;
    if (!row.responded) pending(item);
    remember(requests, row.pair, item);
    if (row.call && row.direction === 'sent' && !calls.get(row.call)?.isConnected) remember(calls, row.call, item);
  }

  function direction(place, sent) {
    place.textContent = sent ? '→' : '←';
    place.title = place.ariaLabel = sent ? 'Sent' : 'Received';
  }

  function pending(item) {
    item.dataset.pending = '';
    setWord(item, 'Pending', 'run');
  }

  function settle(item, row) {
    delete item.dataset.pending;
    setWord(item, row.word, row.tone);
    for (const name of ['duration', 'size']) slot(item, name).textContent = row[name];
    outdated(item, page);
  }

  /* Responses, and messages of a call, have no row of their own in a paired list. */
  function joins(row, form) {
    if (!paired() || !row.is_message) return false;
    if (row.connection && row.connection !== connection) reconnected(row.connection);
    if (RESPONSES.has(row.kind)) return !outcomeAwaited(row, form);
    return Boolean(row.call) && (row.direction === 'received' || row.kind === 'notification' || calls.get(row.call)?.isConnected) && row.kind !== 'invalid';
  }

  /* With a filter by outcome, the response decides whether its request is shown: the response's frame becomes its
     row. */
  function outcomeAwaited(row, { outcome }) {
    const request = waiting.get(row.pair);
    if (!request || !outcome.value) return false;
    waiting.delete(row.pair);
    if (outcome.value !== outcomeOf(row)) return false;
    const { word, tone, duration, size } = row;
    Object.assign(row, request, { word, tone, duration, size, kind: 'request', responded: true });
    return true;
  }

  function join(row) {
    if (RESPONSES.has(row.kind)) {
      const item = requests.get(row.pair);
      if (!item) return false;
      if (item.isConnected) settle(item, row);
      requests.delete(row.pair);
      return true;
    }
    const parent = calls.get(row.call);
    if (!parent) return false;
    if (!parent.isConnected) return true; // the limit removed it
    const item = page.querySelector('[data-console-row]').content.firstElementChild.cloneNode(true);
    item.dataset.seq = row.seq;
    element(row, item);
    parent.querySelector('[data-part="children"]').append(item);
    return item;
  }

  function reconnected(now) {
    if (connection) {
      for (const item of page.querySelectorAll('li[data-pending]')) {
        delete item.dataset.pending;
        setWord(item, 'No response', 'warn');
      }
    }
    connection = now;
  }

  function listed(list) {
    requests.clear();
    calls.clear();
    waiting.clear();
    for (const item of list.querySelectorAll('li[data-pair]')) {
      if (item.hasAttribute('data-pending')) requests.set(item.dataset.pair, item);
      if (item.dataset.ofCall && !calls.has(item.dataset.ofCall)) calls.set(item.dataset.ofCall, item);
    }
  }

  const { close } = openConsole({
    page, kind: 'message', noun: 'message', element, joins, join, listed,
    matches: (row, form) => row.responded || matches(row, form),
  });
  unfolding(page);

  /* The request of a response, and vice versa. */
  function mark(item) {
    if (paired()) return; // one row has both
    const pair = item?.dataset.pair;
    for (const other of page.querySelectorAll(ROW)) other.classList.toggle('paired', Boolean(pair) && other.dataset.pair === pair);
  }

  for (const kind of ['pointerover', 'focusin']) {
    page.addEventListener(kind, (event) => mark(event.target.closest(ROW)));
  }
  return close;
}

startTab('protocol', start);
