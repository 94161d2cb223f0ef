/* A server request is answered below the card of the waiting call, with the inbox's form. One at a time, because the
   ids of the fields are the same. A link to open has its own page. */
import { whileBusy } from './busy.js';
import { announce } from './dom.js';
import { explain, send } from './sign-in.js';
import { dismiss, showMessages } from './toast.js';
import { unsentOf } from './unsent.js';

const AGAIN_MS = 5_000;
const results = document.getElementById('results');
let shown = null; // the section with the form
let loading = '';

const waiting = () => results.querySelector('[data-call-waits] [data-waiting-question]');

async function pageOf(answer) {
  return new DOMParser().parseFromString(await answer.text(), 'text/html');
}

const bodyIn = (page) => page.getElementById('question-body');

function fill(body) {
  shown.replaceChildren(...body.childNodes);
  htmx.process(shown);
  shown.querySelector('[data-sf-errors]')?.focus();
}

/* Once per request: one without a form for this page would be fetched again with every change of its card. */
async function show(link) {
  const uid = link.dataset.waitingQuestion;
  if (shown || loading === uid) return;
  loading = uid;
  const answer = await fetch(link.href);
  if (answer.status >= 500) throw new Error(`mcpadmin answered with HTTP ${answer.status}`);
  const body = bodyIn(await pageOf(answer));
  const slot = results.querySelector(`[data-waiting-question="${uid}"]`)?.closest('.call-slot');
  if (!slot || shown || !body?.querySelector('#answer-form[data-primary]')) return;
  shown = document.createElement('section');
  shown.dataset.answers = uid;
  shown.dataset.callNumber = slot.dataset.callNumber ?? '';
  shown.setAttribute('aria-label', 'Answer to the request');
  slot.after(shown);
  fill(body);
  dismiss(document.querySelector(`[data-toasts-polite] a[href="${link.getAttribute('href')}"]`)?.closest('.toast'));
  announce('The server requests input. The form is below the call.');
}

/* The control of the current form that corresponds to one of the previous form. */
function sameAs({ id, name, value }) {
  return shown.querySelector(id ? `#${CSS.escape(id)}` : `[name="${CSS.escape(name)}"][value="${CSS.escape(value)}"]`);
}

/* Where the focus goes when a form closes. */
function goTo(card) {
  card?.querySelector('h2 a')?.focus({ preventScroll: true });
}

function forget() {
  const [card, wasInside] = [shown?.previousElementSibling, shown?.contains(document.activeElement)];
  shown?.remove();
  shown = null;
  if (wasInside) goTo(card);
}

/* The contents of this section's form, and its position. */
function keep(unsent, section, place) {
  unsent.dataset.callNumber = section.dataset.callNumber;
  place.after(unsent);
}

/* When the request ends, its notice disappears from the card, and the form with it. */
function follow() {
  const link = waiting();
  if (shown && !results.querySelector(`[data-waiting-question="${shown.dataset.answers}"]`)) {
    const unsent = unsentOf(shown.querySelector('#answer-form:not([inert])')); // inert: its answer is being sent
    if (unsent) keep(unsent, shown, shown);
    forget();
  }
  if (link) show(link).catch(() => setTimeout(again, AGAIN_MS)); // meanwhile the link of the card leads to it
}

function again() {
  loading = '';
  follow();
}

results?.addEventListener('submit', async (event) => {
  const form = event.target;
  if (form.id !== 'answer-form') return;
  event.preventDefault();
  event.stopPropagation();
  const body = new FormData(form, event.submitter);
  const section = shown; // ends with its request, possibly before the answer arrives
  const card = section.previousElementSibling;
  const focused = document.activeElement;
  const goesOn = () => [document.body, focused].includes(document.activeElement); // an inert form loses the focus
  form.inert = true;
  try {
    const sent = send(form.getAttribute('action'), { method: 'POST', body }); // a button is called "action"
    const answer = await whileBusy(section, sent, 'Sending the answer…');
    const page = await pageOf(answer);
    if (!bodyIn(page)) throw new Error(`mcpadmin answered with HTTP ${answer.status}`);
    showMessages(page);
    if (shown === section && page.querySelector('#answer-form')) {
      fill(bodyIn(page));
      if (goesOn()) sameAs(focused)?.focus();
    } else {
      const unsent = page.querySelector('[data-unsent] > article'); // it came too late
      if (unsent) keep(unsent, section, card);
      if (shown === section) forget();
      if (goesOn()) goTo(card);
    }
  } catch (problem) {
    explain(problem);
  } finally {
    form.inert = false;
    if (form.isConnected && goesOn()) focused.focus();
  }
});

if (results) {
  new MutationObserver(follow).observe(results, { childList: true, subtree: true });
  follow();
}
