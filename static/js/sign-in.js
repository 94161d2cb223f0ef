/* A sign-in that ended while a page was open: the person signs in beside the page, and what was sent is sent once more.

   What the server refuses for want of a sign-in it has not begun, so sending it again cannot do it twice. */
import { followed, whileBusy } from './busy.js';
import { csrfToken } from './dom.js';
import { live } from './live.js';
import { toast } from './toast.js';

const GIVE_UP_MS = 15_000;
const HEAL_MS = 30_000;
const STILL_OUT = 'You are signed out. Nothing was sent and your input is kept.';
const OTHER_USER = 'This browser is now signed in as another user. Nothing was sent. Reload the page to continue as that user.';
const tabs = new BroadcastChannel('mcpadmin.sign-in');
let asking = null; // the promise of the open dialog
let healed = 0;

export class SignedOut extends Error {}

const dialog = () => document.getElementById('sign-in-beside');

/* Every form of this page sends the token that the last sign-in made. */
function renew(token) {
  document.body.dataset.csrf = token;
  document.body.setAttribute('hx-headers:inherited', JSON.stringify({ 'X-CSRFToken': token }));
  for (const input of document.querySelectorAll('input[name=csrfmiddlewaretoken]')) input.value = token;
}

/* Whether the user of this page is signed in; throws where another one is, and keeps the old token, which is then refused:
   with theirs, the next press would be sent as them. */
async function signedIn() {
  const { sessionUrl, user } = document.body.dataset;
  const headers = { Accept: 'application/json' };
  const answer = await fetch(sessionUrl, { headers, cache: 'no-store', signal: AbortSignal.timeout(GIVE_UP_MS) });
  if (!answer.ok) throw new Error(`mcpadmin answered with HTTP ${answer.status}. Try again.`);
  const session = await answer.json();
  if (session.user !== null && String(session.user) !== user) throw new SignedOut(OTHER_USER);
  renew(session.csrf);
  return session.user !== null;
}

function complain(words) {
  const notice = dialog().querySelector('[data-sign-in-problem]');
  notice.textContent = words;
  notice.hidden = !words;
}

async function submitted(form) {
  const headers = { 'X-Requested-With': 'XMLHttpRequest', Accept: 'application/json' };
  const body = new FormData(form);
  body.set('csrfmiddlewaretoken', csrfToken());
  const answer = await fetch(form.action, { method: 'POST', body, headers, signal: AbortSignal.timeout(GIVE_UP_MS) });
  if (answer.ok) return (await signedIn()) ? '' : 'Your account requires another step. Use a new tab to sign in.';
  if (answer.status === 429 || answer.status === 503) return saidIn(answer);
  if (answer.status !== 400) return `mcpadmin answered with HTTP ${answer.status}. Try again.`;
  const { form: refused } = await answer.json();
  const lines = [...refused.errors, ...Object.values(refused.fields).flatMap((field) => field.errors)];
  return lines.join(' ') || 'The sign-in was refused.';
}

async function trySignIn(form) {
  const button = form.querySelector('[type=submit]');
  button.disabled = true;
  complain('');
  try {
    const problem = await submitted(form);
    if (!problem) dialog().close('signed-in');
    complain(problem);
  } catch (problem) {
    complain(problem instanceof SignedOut ? problem.message : 'No response from mcpadmin. Check the connection and try again.');
  } finally {
    button.disabled = false;
    if (dialog().open) form.elements.password.select();
  }
}

async function ask() {
  if (!(await signedIn())) {
    const form = dialog().querySelector('form');
    form.reset();
    complain('');
    dialog().returnValue = '';
    const closed = new Promise((resolve) => dialog().addEventListener('close', resolve, { once: true }));
    dialog().showModal();
    form.elements.password.focus();
    await closed;
    form.reset();
    if (dialog().returnValue !== 'signed-in') throw new SignedOut(STILL_OUT);
    tabs.postMessage('signed-in');
  }
  live.resume();
}

/* Resolves when the user of this page is signed in, at once where they are; rejects when they decline. */
export function signIn() {
  asking ??= ask().finally(() => {
    asking = null;
  });
  return asking;
}

function attempt(url, init) {
  const { body } = init;
  if (body instanceof FormData && body.has('csrfmiddlewaretoken')) body.set('csrfmiddlewaretoken', csrfToken());
  const headers = { 'X-Requested-With': 'XMLHttpRequest', 'X-CSRFToken': csrfToken(), ...init.headers };
  return fetch(url, { ...init, headers });
}

const refused = (answer) => answer.status === 401 || answer.headers.get('X-CSRF') === 'renew';

/* As fetch, for what a person sends: where the sign-in has ended they sign in, and it is sent once more. */
export async function send(url, init = {}) {
  const answer = await attempt(url, init);
  if (!refused(answer)) return answer;
  await signIn();
  const again = await attempt(url, init);
  if (refused(again)) throw new SignedOut(STILL_OUT);
  return again;
}

export function explain(problem) {
  const signedOut = problem instanceof SignedOut;
  toast({
    tone: signedOut ? 'warn' : 'bad',
    title: signedOut ? 'Not sent' : 'No response from mcpadmin',
    text: signedOut ? problem.message : 'Check whether the change was made before sending it again.',
  });
}

/* Why it was refused: in its own words, if it has some for a person. */
export async function saidIn(response) {
  const words = response.headers.get('Content-Type')?.startsWith('text/plain') ? (await response.text()).trim() : '';
  if (words) return words;
  return response.status === 403 ? "You don't have permission." : `mcpadmin answered with HTTP ${response.status}. Reload the page and try again.`;
}

/* Forms that the browser sends itself: first the sign-in, then the form, with all that was typed. */
function guardForms() {
  const cleared = new WeakSet();
  const busy = new WeakSet();
  addEventListener('submit', async (event) => {
    const { target: form, submitter } = event;
    const method = submitter?.getAttribute('formmethod') ?? form.getAttribute('method');
    if (event.defaultPrevented || method !== 'post' || cleared.delete(form)) return;
    event.preventDefault();
    if (busy.has(form)) return;
    busy.add(form);
    try {
      if (form.matches('[data-sign-out]') && !(await signedIn())) return void location.assign(document.body.dataset.loginUrl);
      await whileBusy(form, signIn(), 'Sending…');
      cleared.add(form);
      form.requestSubmit(submitter?.isConnected ? submitter : undefined);
    } catch (problem) {
      if (problem instanceof SignedOut) explain(problem);
      else toast({ tone: 'bad', title: 'No response from mcpadmin', text: 'Nothing was sent. Check the connection and try again.' });
    } finally {
      busy.delete(form);
    }
  });
}

/* The same for what htmx sends. */
function guardFragments() {
  const resent = new WeakSet();
  document.body.addEventListener('htmx:after:request', (event) => {
    if (event.detail.ctx.response?.raw.ok) resent.delete(event.detail.ctx.sourceElement);
  });
  document.body.addEventListener('htmx:response:error', async (event) => {
    const { sourceElement, sourceEvent, response } = event.detail.ctx;
    if (!refused(response.raw) || followed(sourceElement)) return; // of one that is followed, the live pill says it
    try {
      if (resent.delete(sourceElement)) throw new SignedOut(STILL_OUT);
      await signIn();
      resent.add(sourceElement);
      if (sourceElement instanceof HTMLFormElement) sourceElement.requestSubmit(sourceEvent.submitter);
      else htmx.trigger(sourceElement, sourceEvent.type === 'intersect' ? 'click' : sourceEvent.type); // it comes into sight once
    } catch (problem) {
      explain(problem);
    }
  });
}

/* Another tab may have signed in again, with the token that all tabs share: then nobody has to be asked here. */
async function heal() {
  if (live.state !== 'signed-out' && !dialog().open) return;
  if (Date.now() - healed < HEAL_MS && !dialog().open) return;
  healed = Date.now();
  try {
    if (!(await signedIn())) return;
    if (dialog().open) dialog().close('signed-in');
    live.resume();
  } catch {
    /* The pill and the next press say what is wrong. */
  }
}

export function startSignIn() {
  if (!dialog() || !document.body.dataset.sessionUrl) return;
  dialog().querySelector('form').addEventListener('submit', (event) => {
    event.preventDefault();
    trySignIn(event.target);
  });
  document.querySelector('[data-live-pill]')?.addEventListener('click', (event) => {
    if (!event.target.closest('a')) return;
    event.preventDefault();
    signIn().catch(() => {});
  });
  guardForms();
  guardFragments();
  tabs.addEventListener('message', () => {
    healed = 0;
    heal();
  });
  live.addEventListener('state', heal);
  document.addEventListener('visibilitychange', () => !document.hidden && heal());
}
