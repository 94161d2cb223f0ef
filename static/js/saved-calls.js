/* Saved calls: saving what a form holds, running one in place, and a checklist that runs several one after another. */
import { hold, isHeld } from './busy.js';
import { announceEnd, isUnknown, RUNNING, showAgain, whenOver } from './call-cards.js';
import { live } from './live.js';
import { refreshParts } from './refresh.js';
import { explain, send, SignedOut } from './sign-in.js';
import { toast } from './toast.js';

const Lost = class extends Error {};
const UNKNOWN = 'No confirmation received. Check the history before running it again.';
const MAYBE_SAVED = 'No confirmation received. Check Saved calls before saving it again.';

/* Sent once: without a response, its effect is unknown. */
async function posted(url, body, lost = UNKNOWN) {
  let response;
  let answer;
  try {
    response = await send(url, { method: 'POST', body, headers: { Accept: 'application/json' } });
    const json = response.headers.get('Content-Type')?.startsWith('application/json');
    answer = json ? await response.json() : { message: `mcpadmin answered with HTTP ${response.status}.` };
  } catch (problem) {
    if (problem instanceof SignedOut) throw problem;
    throw new Lost(lost, { cause: problem });
  }
  if (isUnknown(response, answer)) throw new Lost(answer.unconfirmed ? answer.message : lost);
  return answer;
}

function failed(problem) {
  if (problem instanceof Lost) toast({ title: problem.message, tone: 'bad' });
  else explain(problem);
}

/* --- saving --- */
async function save(form) {
  const body = new FormData(form);
  const filled = document.querySelector(form.dataset.saveForm || 'null');
  const own = new Set(body.keys());
  /* A field may have several values: a ticked box, chips. */
  for (const [name, value] of filled ? new FormData(filled) : []) if (!own.has(name)) body.append(name, value);
  body.append('_filled', '1');
  const answer = await posted(form.action, body, MAYBE_SAVED);
  if (!answer.url) return toast({ title: 'Not saved', text: answer.message, tone: 'bad' });
  form.reset();
  for (const details of document.querySelectorAll('details[data-pop][open]')) details.open = false;
  toast({ title: answer.message, tone: 'ok', action: { label: 'Saved calls', url: answer.url } });
  return refreshParts('saved-calls');
}

/* --- one --- */
const row = (uid) => document.querySelector(`[data-saved="${uid}"]`);

function outcome(uid, ...parts) {
  row(uid)?.querySelector('[data-outcome]').replaceChildren(...parts);
}

function link(text, url) {
  return Object.assign(document.createElement('a'), { textContent: text, href: url });
}

const stopped = (signal) => new Promise((resolve) => {
  if (signal?.aborted) resolve(null);
  signal?.addEventListener('abort', () => resolve(null), { once: true });
});

/* Resolves with whether it succeeded, when its call has ended. Null if it was stopped before: the call continues, its
   row shows the outcome, and `onLate` is called with whether it succeeded. */
async function run(form, signal, onLate) {
  const { runSaved: uid } = form.dataset;
  outcome(uid, 'Sending…');
  const answer = await posted(form.action, new FormData(form));
  if (answer.ask) {
    outcome(uid, link('Needs confirmation', answer.ask));
    return false;
  }
  if (!answer.call) {
    outcome(uid, answer.message);
    return false;
  }
  if (!signal) announceEnd(answer); // a checklist counts them
  const card = fragmentOf(answer.html);
  outcome(uid, card.querySelector('header .tag') ?? '', ' ', link(`#${answer.number}`, answer.url));
  const { callState } = card.querySelector('[data-call-state]').dataset;
  if (!RUNNING.includes(callState)) return callState === 'succeeded';
  const slot = document.createElement('div');
  const ended = new Promise((resolve) => {
    whenOver(answer.call, async ({ state }) => {
      const pill = await pillOf(answer.call);
      if (slot.isConnected) outcome(uid, pill ?? 'Ended', ' ', link(`#${answer.number}`, answer.url));
      live.scan(document.body); // its topic is no longer needed
      resolve(state === 'succeeded');
    });
  });
  Object.assign(slot.dataset, { liveTopic: `call.${answer.call}`, liveSince: String(answer.version) });
  row(uid)?.querySelector('[data-outcome]').append(slot);
  live.scan(slot);
  const succeeded = await Promise.race([ended, stopped(signal)]);
  if (succeeded === null) ended.then(onLate);
  return succeeded;
}

/* Null if it cannot be loaded: the call has ended nevertheless. */
async function pillOf(call) {
  try {
    const shown = await fetch(`/calls/${call}/card/`, { headers: { 'HX-Request': 'true' } });
    return shown.ok ? fragmentOf(await shown.text()).querySelector('header .tag') : null;
  } catch {
    return null;
  }
}

/* HTML of our own server, parsed without running or loading anything. */
function fragmentOf(html) {
  return document.adoptNode(new DOMParser().parseFromString(html, 'text/html').body);
}

async function runHere(form) {
  const button = form.querySelector('button');
  if (isHeld(button)) return;
  const end = hold(button);
  try {
    if (row(form.dataset.runSaved)) await run(form);
    else {
      const answer = await posted(form.action, new FormData(form));
      if (answer.ask) location.assign(answer.ask);
      else if (answer.call) showAgain(answer);
      else toast({ title: 'Not run', text: answer.message, tone: 'bad' });
    }
  } catch (problem) {
    outcome(form.dataset.runSaved, problem instanceof Lost ? 'Outcome unknown' : '');
    failed(problem);
  } finally {
    end();
  }
}

document.addEventListener('submit', (event) => {
  const form = event.target;
  if (form.matches('[data-save-form]')) {
    event.preventDefault();
    save(form).catch(failed);
  } else if (form.matches('[data-run-saved]')) {
    event.preventDefault();
    runHere(form);
  }
});

/* --- checklist --- */
const list = document.querySelector('[data-checklist]');

function startChecklist() {
  const go = list.querySelector('[data-run-checklist]');
  const stop = list.querySelector('[data-stop-checklist]');
  const sum = list.querySelector('[data-checklist-sum]');
  const all = list.querySelector('[data-tick-all]');
  const ticks = () => [...list.querySelectorAll('[data-tick]:not(:disabled)')];
  const ticked = () => ticks().filter((box) => box.checked);
  let stopping = null;
  let round = 0;

  function count() {
    const number = ticked().length;
    go.disabled = !number && !stopping;
    all.checked = number > 0 && number === ticks().length;
    all.indeterminate = number > 0 && number < ticks().length;
  }

  async function runAll() {
    if (stopping) return;
    const forms = ticked().map((box) => box.closest('tr').querySelector('[data-run-saved]'));
    const end = hold(go);
    stopping = new AbortController();
    stop.hidden = false;
    count();
    let [good, done, running] = [0, 0, 0];
    round += 1;
    const mine = round;
    const tell = () => {
      if (mine === round) sum.textContent = `${good} of ${forms.length} succeeded${running ? `, ${running} still running` : ''}`;
    };
    const late = (succeeded) => {
      [good, running] = [good + Number(succeeded), 0];
      tell();
    };
    for (const form of forms) outcome(form.dataset.runSaved, 'Waiting');
    try {
      for (const form of forms) {
        sum.textContent = `Running ${done + 1} of ${forms.length}`;
        const succeeded = await run(form, stopping.signal, late); // eslint-disable-line no-await-in-loop
        good += Number(succeeded);
        running = Number(succeeded === null);
        done += 1;
        if (stopping.signal.aborted) break;
      }
    } catch (problem) {
      failed(problem);
      if (problem instanceof Lost) {
        outcome(forms[done].dataset.runSaved, 'Outcome unknown');
        done += 1;
      }
    }
    for (const form of forms.slice(done)) outcome(form.dataset.runSaved, 'Not run');
    tell();
    stopping = null;
    end();
    count();
    if (stop === document.activeElement) go.focus();
    stop.hidden = true;
  }

  all.addEventListener('change', () => {
    for (const box of ticks()) box.checked = all.checked;
    count();
  });
  list.addEventListener('change', count);
  go.addEventListener('click', runAll);
  stop.addEventListener('click', () => stopping?.abort());
  count();
}

if (list) startChecklist();
