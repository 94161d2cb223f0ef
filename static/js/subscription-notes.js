/* On every page: a message when a subscribed resource changed, and the pills that show how a subscription stands. */
import { kept } from './tab-storage.js';
import { dismiss, toast } from './toast.js';

const PAUSE_MS = 5_000;
const BOARD = '.nav-i[data-section=subscriptions]'; // the way to the board: absent without permission to see servers
const KEY = 'subscriptions.told'; // per tab: the newest change that was told, by the server's clock
const HEARD = 'subscriptions.heard'; // per tab: when it heard of the subscriptions last, in ms by the server's clock

let waiting = new Map(); // subscription -> its newest row
let timer = 0;
let quietUntil = 0;
let last = null; // the message that was shown last
const shown = Number(document.body.dataset.requestedAt);
const since = Date.parse(kept(KEY) ?? '') || shown; // a tab that was just opened has nothing to catch up on
const seen = new Map(); // subscription -> number of its newest version
const newest = new Map(); // subscription -> its newest row

function paint(row) {
  for (const cell of document.querySelectorAll(`[data-subscription-state="${row.subscription}"]`)) {
    if (Number(cell.dataset.version) > row.version) continue;
    cell.dataset.version = row.version;
    const words = new DOMParser().parseFromString(row.pill, 'text/html').body.textContent.trim();
    if (words !== cell.textContent.trim()) htmx.swap({ target: cell, swap: 'innerHTML', text: row.pill });
  }
}

/* What changed since this tab told of a change last, once; whatever else moved brings its row as well. */
function isNews(row) {
  if (!row.fresh || row.newest <= (seen.get(row.subscription) ?? 0)) return false;
  seen.set(row.subscription, row.newest);
  const changed = Date.parse(row.changed_at);
  if (!(changed > since)) return false;
  if (!(changed <= Date.parse(kept(KEY) ?? ''))) kept(KEY, row.changed_at);
  return row.notify && row.newest > 1; // the first version is what it was, no change
}

/* By the page of the subscription, or by that of the resource. */
function isShown(row) {
  const resource = document.getElementById('resource-content')?.dataset;
  if (resource?.server === row.server && resource.uri === row.uri) return true;
  return document.querySelector('[data-subscription-page]')?.dataset.subscriptionPage === row.subscription;
}

function tell() {
  timer = 0;
  if (document.hidden || !waiting.size) return;
  const rows = [...waiting.values()];
  waiting = new Map();
  quietUntil = Date.now() + PAUSE_MS;
  dismiss(last); // one stays until it is dismissed, or there is newer news
  if (rows.length === 1) {
    const [row] = rows;
    last = toast({
      title: 'A subscribed resource changed',
      text: `${row.title} · ${row.server_name} · version ${row.newest}`,
      action: { label: 'Show the change', url: row.url },
    });
  } else {
    last = toast({
      title: `${rows.length} subscribed resources changed`,
      text: rows.slice(0, 3).map((row) => row.title).join(', '),
      action: { label: 'Show them', url: document.querySelector(BOARD).href },
    });
  }
}

function tellSoon() {
  if (!timer) timer = setTimeout(tell, Math.max(0, quietUntil - Date.now()));
}

export function startSubscriptionNotes(live) {
  if (!document.querySelector(BOARD)) return;
  if (kept(KEY) === null) kept(KEY, new Date(shown).toISOString());
  const heard = (moment) => moment > Number(kept(HEARD) ?? 0) && kept(HEARD, String(moment));
  live.on('subscriptions', 'subscription', (frame) => {
    for (const row of frame.rows ?? []) {
      if (row.deleted) {
        newest.delete(row.subscription);
        continue;
      }
      heard(row.moved);
      newest.set(row.subscription, row);
      paint(row);
      if (!isNews(row) || isShown(row)) continue;
      waiting.set(row.subscription, row);
      tellSoon();
    }
  }, Number(kept(HEARD) ?? shown) || null);
  /* What a form brought may be older than what was told meanwhile: the server agrees within milliseconds. */
  document.addEventListener('htmx:after:swap', () => newest.forEach(paint));
  live.on('subscriptions', 'synced', (frame) => {
    if (frame.seq) heard(frame.seq);
  });
  document.addEventListener('visibilitychange', () => !document.hidden && tellSoon());
}
