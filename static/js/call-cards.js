/* Cards of calls on the pages that make them: added when a call is accepted, updated by its topic, cancelled. */
import { hold, isHeld } from './busy.js';
import { announce } from './dom.js';
import { live } from './live.js';
import { explain, saidIn, send, SignedOut } from './sign-in.js';
import { toast } from './toast.js';

export const RUNNING = ['held', 'requested', 'sent'];
const MOST_OVER = 30; // of 100 topics that a page may follow
const results = document.getElementById('results');

/* A slot with the card of a call, above all with a lower number, kept up to date by the topic of the call. */
export function addCard(uid, version, html, list = results, number = Infinity) {
  if (!list || document.getElementById(`call-${uid}`)) return;
  const slot = document.createElement('div');
  slot.className = 'call-slot';
  slot.id = `call-${uid}`;
  slot.dataset.liveTopic = `call.${uid}`;
  slot.dataset.liveSince = String(version);
  slot.dataset.liveTarget = `call.${uid}`;
  if (number !== Infinity) slot.dataset.callNumber = String(number);
  list.insertBefore(slot, [...list.children].find((one) => !(Number(one.dataset.callNumber) > number)) ?? null);
  htmx.swap({ target: slot, swap: 'innerHTML', text: html });
  document.getElementById('no-results')?.setAttribute('hidden', '');
  makeRoom(list);
  live.scan(slot);
}

/* Removes the oldest completed calls and their topics: the history has them. */
function makeRoom(list) {
  const stateOf = (slot) => slot.querySelector('[data-call-state]')?.dataset.callState ?? 'requested';
  const over = [...list.children].filter((one) => one.matches('.call-slot') && !RUNNING.includes(stateOf(one)));
  for (const slot of over.slice(MOST_OVER)) if (!slot.contains(document.activeElement)) slot.remove();
}

/* Calls `act` once, with the row of the call's final state. Joining the topic returns the current state. */
export function whenOver(uid, act) {
  const off = live.on(`call.${uid}`, 'call', (frame) => {
    const row = frame.rows?.find((one) => one.final);
    if (!row) return;
    off();
    act(row);
  });
  return off;
}

/* The state of a completed call as its card shows it; '' while it runs. */
function endIn(html) {
  const card = new DOMParser().parseFromString(html ?? '', 'text/html');
  const { callState } = card.querySelector('[data-call-state]')?.dataset ?? {};
  return callState && !RUNNING.includes(callState) ? card.querySelector('header .tag').textContent.trim() : '';
}

/* Announces the end of a call of this page to screen readers, because its card is not a live region. */
export function announceEnd({ call, number, html }) {
  const tell = (word) => announce(`Call #${number}: ${word}`);
  const end = endIn(html);
  if (end) tell(end);
  else whenOver(call, ({ word }) => tell(word));
}

export function say(form, words) {
  const place = form.querySelector('[data-run-state]');
  if (place) place.textContent = words;
}

/* Says that the call is running, until its card shows the outcome. */
export function followWords(form, answer) {
  const { call, number, html } = answer;
  announceEnd(answer);
  const words = `Call #${number} is running`;
  if (html && !html.includes('data-call-progress')) return say(form(), '');
  say(form(), words);
  whenOver(call, () => {
    if (form()?.querySelector('[data-run-state]')?.textContent === words) say(form(), '');
  });
}

export function refuse(form, message) {
  const notice = form.querySelector('[data-call-refused]');
  notice.textContent = message;
  notice.hidden = false;
  notice.focus();
}

/* Cancels through the socket or, without one, by an HTTP request. Cancelling twice has no effect. */
document.addEventListener('submit', async (event) => {
  const form = event.target;
  if (!form.matches('[data-cancel-call]')) return;
  event.preventDefault();
  const button = form.querySelector('button');
  if (isHeld(button)) return;
  const end = hold(button);
  try {
    const refusal = await cancelled(form);
    if (!refusal) return;
    toast({ tone: 'bad', title: 'Not cancelled', text: refusal });
  } catch (problem) {
    explain(problem);
  }
  end();
});

/* Resolves with the reason of a refusal, or with "". */
async function cancelled(form) {
  try {
    const { op, message } = await live.request({ op: 'cancel', call: form.dataset.cancelCall });
    return op === 'rejected' ? message : '';
  } catch {
    const response = await send(form.action, { method: 'POST', body: new FormData(form), headers: { 'HX-Request': 'true' } });
    return response.ok ? '' : saidIn(response);
  }
}

/* Whether the call may have been placed nevertheless. */
export const isUnknown = (response, answer) => Boolean(answer.unconfirmed) || response.status >= 500;

/* Runs a call again. The new card appears where the page has such cards; otherwise its own page opens. */
export function showAgain(answer) {
  const slot = document.getElementById('read-slot');
  if (!results && !slot) return location.assign(answer.url);
  if (slot) {
    slot.replaceChildren();
    document.getElementById('not-read')?.remove();
  }
  addCard(answer.call, answer.version, answer.html, slot ?? results, slot ? Infinity : answer.number);
  const card = document.getElementById(`call-${answer.call}`);
  card?.scrollIntoView({ block: 'nearest' });
  if (answer.message) toast({ title: answer.message, tone: 'info' });
  else announce(`Call #${answer.number} is running`);
  announceEnd(answer);
  return undefined;
}

document.addEventListener('submit', async (event) => {
  const form = event.target;
  if (!form.matches('[data-repeat-call]')) return;
  event.preventDefault();
  const button = form.querySelector('button');
  if (isHeld(button)) return;
  const end = hold(button);
  try {
    const response = await send(form.action, { method: 'POST', body: new FormData(form), headers: { Accept: 'application/json' } });
    const answer = response.headers.get('Content-Type')?.startsWith('application/json') ? await response.json() : {};
    if (answer.ask) return location.assign(answer.ask);
    if (isUnknown(response, answer)) return toast({ title: 'No confirmation received', text: answer.message ?? 'Check the history before running it again.', tone: 'bad' });
    if (!answer.call) return toast({ title: 'Not run again', text: answer.message ?? `mcpadmin answered with HTTP ${response.status}.`, tone: 'bad' });
    showAgain(answer);
  } catch (problem) {
    if (problem instanceof SignedOut) explain(problem);
    else toast({ title: 'No confirmation received', text: 'Check the history before running it again.', tone: 'bad' });
  } finally {
    end();
  }
  return undefined;
});

/* Another person's call of what is shown here: fetch its card once; from then on, its topic keeps it up to date. */
if (results) {
  const { live: seen, method, target } = results.dataset;
  live.on(`server.${seen}`, 'call', async (frame) => {
    for (const row of frame.rows ?? []) {
      const other = row.method !== method || row.tool !== target;
      if (other || document.getElementById(`call-${row.uid}`)) continue;
      /* If it cannot be fetched, it appears on the next page load: nobody on this page requested it. */
      const response = await fetch(`/calls/${row.uid}/card/`, { headers: { 'HX-Request': 'true' } }).catch(() => null);
      if (response?.ok) addCard(row.uid, row.version, await response.text(), results, row.number);
    }
  });
}
