/* The Network tab: the HTTP requests of one session as they are made, and what each carried. */
import { openConsole, startTab } from './console.js';
import { setWord, unfolding } from './wire.js';

const KINDS = new Map([['mcp', 'exchange'], ['authorization', 'authorization']]);
const AHEAD = 500; // exchanges whose messages may come before them

/* Same as servers.kit.words.format_bytes. */
function bytes(count) {
  let size = count;
  for (const unit of ['B', 'kB', 'MB', 'GB']) {
    if (size < 999.5 || unit === 'GB') return unit === 'B' || size >= 99.95 ? `${size.toFixed(0)} ${unit}` : `${size.toFixed(1)} ${unit}`;
    size /= 1000;
  }
  return '';
}

function matches(row, { kind, outcome, text }) {
  if (row.kind === 'dropped') return true;
  if (row.kind !== 'exchange' && row.kind !== 'authorization') return false;
  if (kind.value && KINDS.get(kind.value) !== row.kind) return false;
  if (outcome.value && (outcome.value === 'failed') !== (row.tone === 'bad')) return false;
  const words = text.value.trim().toLowerCase();
  return !words || row.method.toLowerCase().includes(words) || row.target.toLowerCase().includes(words);
}

export function start(page) {
  const items = new Map(); // exchange -> its row in the page
  const ahead = new Map(); // exchange -> { messages, sent, received } of those that are not in the page

  const slot = (item, name) => item.querySelector(`[data-part="${name}"]`);

  function count(item, row) {
    const sum = (name, more) => (item.dataset[name] = Number(item.dataset[name]) + more);
    if (row.is_message) {
      slot(item, 'messages').textContent = sum('messages', 1);
      if (row.direction === 'sent') slot(item, 'sent').textContent = bytes(sum('sent', row.bytes));
      else if (Number(item.dataset.received) < row.bytes) slot(item, 'size').textContent = bytes(sum('received', row.bytes));
    } else if (row.kind === 'stream_end') {
      slot(item, 'size').textContent = row.size;
      stream(item, row.fault ? `Stream lost: ${row.fault.replaceAll('_', ' ')}` : 'Stream ended', row.fault ? 'bad' : '');
    }
  }

  function stream(item, words, tone) {
    const place = slot(item, 'stream');
    place.textContent = words;
    place.hidden = !words;
    place.classList.remove('run', 'bad');
    if (tone) place.classList.add(tone);
  }

  function element(row, item) {
    slot(item, 'at').dateTime = row.at;
    for (const name of ['method', 'target', 'duration', 'size']) slot(item, name).textContent = row[name];
    setWord(item, row.word, row.tone);
    Object.assign(item.dataset, { exchange: row.exchange, messages: 0, sent: 0, received: row.bytes });
    stream(item, row.is_stream ? (row.bytes ? 'Stream ended' : 'Stream open') : '', row.is_stream && !row.bytes ? 'run' : '');
    if (!row.exchange) return;
    items.set(row.exchange, item);
    for (const early of ahead.get(row.exchange) ?? []) count(item, early);
    ahead.delete(row.exchange);
  }

  const joins = (row) => Boolean(row.exchange) && (row.is_message || row.kind === 'stream_end');

  function join(row) {
    const item = items.get(row.exchange);
    if (item) {
      count(item, row);
      return true;
    }
    ahead.set(row.exchange, [...(ahead.get(row.exchange) ?? []), row].slice(-AHEAD));
    if (ahead.size > AHEAD) ahead.delete(ahead.keys().next().value);
    return true;
  }

  function listed(list) {
    items.clear();
    for (const item of list.querySelectorAll('li[data-exchange]:not([data-exchange=""])')) items.set(item.dataset.exchange, item);
  }

  const { close } = openConsole({ page, kind: 'message', noun: 'request', matches, element, joins, join, listed });
  unfolding(page);
  return close;
}

startTab('network', start);
