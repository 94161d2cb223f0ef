/* Replaces parts of this page with what the server renders now; at most one request a second. An address contains a
   short name, which another server or bundle may have got since: its parts must not appear below the first one's
   name. */
import { busy, whileBusy } from './busy.js';
import { explain, send } from './sign-in.js';
import { showMessages, toast } from './toast.js';

const PAUSE_MS = 1_000;
const CEILING_MS = 30_000;
const GIVE_UP_MS = 30_000; // a request that never ends would block all later ones
const here = () => location.href;
const wanted = new Map(); // function that makes an address from ids of parts -> these ids
let timer = 0;
let last = 0;
let pause = PAUSE_MS;
let refreshing = false;
let outdated = false;

function isOfAnother(page) {
  const [now, before] = [page.body.dataset.of, document.body.dataset.of];
  return Boolean(now && before && now !== before);
}

function sayOutdated() {
  if (outdated) return;
  outdated = true;
  toast({
    tone: 'bad',
    title: 'This page is out of date',
    text: 'The server or bundle that it shows was deleted or renamed, and another one now has its short name.',
    action: { label: 'Reload', url: location.href },
  });
}

async function parsed(response) {
  return new DOMParser().parseFromString(await response.text(), 'text/html');
}

async function morphIn(page, ids) {
  if (isOfAnother(page)) return void sayOutdated();
  const pairs = ids.map((id) => [document.getElementById(id), page.getElementById(id)]);
  const found = pairs.filter(([shown, fresh]) => shown && fresh);
  await Promise.all(found.map(([target, fresh]) => htmx.swap({ target, swap: 'innerMorph', text: fresh.innerHTML })));
}

export async function refreshParts(...ids) {
  const ends = ids.map((id) => busy(document.getElementById(id)));
  try {
    await refreshPartsFrom(here, ids);
  } finally {
    for (const end of ends) end();
  }
}

async function refreshPartsFrom(addressOf, wantedIds) {
  const ids = wantedIds.filter((id) => document.getElementById(id));
  if (!ids.length || outdated) return;
  const response = await fetch(addressOf(ids), {
    headers: { Accept: 'text/html' },
    signal: AbortSignal.timeout(GIVE_UP_MS),
  });
  const page = await parsed(response); // always: an unread body keeps its connection open
  if (response.status >= 500) throw new Error(`mcpadmin answered with HTTP ${response.status}`);
  if (response.redirected) return; // signed out: the live pill says so
  await morphIn(page, ids); // also for an error page: if an object is missing, it lists what exists
}

/* Forms with data-in-place keep the rest of the page as it is typed: of the response, only the parts that
   `partsOf(page)` names and the notifications are taken. */
export function sendInPlace(partsOf) {
  document.addEventListener('submit', async (event) => {
    const form = event.target;
    if (!form.matches('form[data-in-place]')) return;
    event.preventDefault();
    /* Sent once: without a response, its effect is unknown. */
    try {
      const answer = await whileBusy(form, send(form.action, { method: 'POST', body: new FormData(form) }), 'Sending…');
      const page = await parsed(answer);
      const ids = partsOf(page);
      if (ids.every((id) => page.getElementById(id))) {
        await morphIn(page, ids);
        showMessages(page);
      } else if (answer.redirected) location.assign(answer.url);
      else toast({ tone: 'bad', title: page.querySelector('h1')?.textContent ?? `mcpadmin answered with HTTP ${answer.status}`, text: 'Reload the page and try again.' });
    } catch (problem) {
      explain(problem);
    }
  });
}

/* One at a time: an older response that arrives later would replace a newer one. Failed requests are repeated with
   growing delays. */
async function refreshWanted() {
  const now = [...wanted];
  [timer, last, refreshing] = [0, Date.now(), true];
  wanted.clear();
  try {
    while (now.length) {
      const [addressOf, ids] = now[0];
      await refreshPartsFrom(addressOf, [...ids]);
      now.shift();
    }
    pause = PAUSE_MS;
  } catch {
    pause = Math.min(2 * pause, CEILING_MS);
    for (const [addressOf, ids] of now) want(addressOf, ids);
  }
  refreshing = false;
  schedule();
}

function schedule() {
  if (timer || refreshing || !wanted.size) return;
  timer = setTimeout(refreshWanted, Math.max(0, last + pause - Date.now()));
}

function want(addressOf, ids) {
  if (!wanted.has(addressOf)) wanted.set(addressOf, new Set());
  for (const id of ids) wanted.get(addressOf).add(id);
}

export function refreshSoon(...ids) {
  refreshSoonFrom(here, ...ids);
}

/* Parts of another page at `addressOf(ids)`. Pass the same function each time. */
export function refreshSoonFrom(addressOf, ...ids) {
  want(addressOf, ids);
  schedule();
}
