/* Parts of this page as the server would render them now, morphed in; at most one request a second. An address has a short
   name, which another server or bundle may have got since: its parts would stand below the name of the first. */
import { busy, whileBusy } from './busy.js';
import { explain, send } from './sign-in.js';
import { showMessages, toast } from './toast.js';

const PAUSE_MS = 1_000;
const CEILING_MS = 30_000;
const GIVE_UP_MS = 30_000; // one that never ends would hold up all that follow
const here = () => location.href;
const wanted = new Map(); // what makes an address of the ids of parts -> these ids
let timer = 0;
let last = 0;
let pause = PAUSE_MS;
let refreshing = false;
let outdated = false;

function isOfAnother(page) {
  const { of } = page.body.dataset;
  if (!of || of === document.body.dataset.of) return false;
  if (!outdated) {
    const title = 'This page is out of date';
    toast({ tone: 'bad', title, text: 'What it shows was deleted or renamed, and another one now has its short name.', action: { label: 'Reload', url: location.href } });
  }
  outdated = true;
  return true;
}

async function parsed(response) {
  return new DOMParser().parseFromString(await response.text(), 'text/html');
}

async function morphIn(page, ids) {
  if (isOfAnother(page)) return;
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
  if (!ids.length) return;
  const response = await fetch(addressOf(ids), {
    headers: { Accept: 'text/html' },
    signal: AbortSignal.timeout(GIVE_UP_MS),
  });
  const page = await parsed(response); // always: a body that nobody reads keeps its connection
  if (response.status >= 500) throw new Error(`mcpadmin answered with HTTP ${response.status}`);
  if (response.redirected) return; // signed out: the live pill says so
  await morphIn(page, ids); // also of an error: a page that lacks what was asked for lists what there is
}

/* Forms marked data-in-place leave the rest of the page as it is typed: of the page that answers, only the parts are taken
   that `partsOf(page)` names, and what it says in the corner. */
export function sendInPlace(partsOf) {
  document.addEventListener('submit', async (event) => {
    const form = event.target;
    if (!form.matches('form[data-in-place]')) return;
    event.preventDefault();
    /* Sent once: what it did is not known from an answer that does not come, and another page is opened, not sent to. */
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

/* One at a time: an older page that comes later would win over a newer one. What fails is tried again, ever more rarely. */
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

/* Parts of another page: `addressOf(ids)` is its address. The same function each time. */
export function refreshSoonFrom(addressOf, ...ids) {
  want(addressOf, ids);
  schedule();
}
