/* A request of a server is answered below the card of the call that waits for it: the form of the inbox, without leaving
   the tool. One at a time; its fields have the same ids. A link to open has its own page. */
import { whileBusy } from './busy.js';
import { announce } from './dom.js';
import { explain, send } from './sign-in.js';

const results = document.getElementById('results');
let shown = null; // the section with the form
let loading = '';

const waiting = () => results.querySelector('[data-call-waits] [data-waiting-question]');

async function bodyOf(answer) {
  return new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('question-body');
}

function fill(body) {
  shown.replaceChildren(...body.childNodes);
  htmx.process(shown);
  shown.querySelector('[data-sf-errors]')?.focus();
}

async function show(link) {
  const uid = link.dataset.waitingQuestion;
  if (shown || loading === uid) return;
  loading = uid;
  const answer = await fetch(link.href);
  const body = answer.ok ? await bodyOf(answer) : null;
  const slot = link.closest('.call-slot');
  if (!slot || shown || !body?.querySelector('#answer-form[data-primary]')) return;
  shown = document.createElement('section');
  shown.dataset.answers = uid;
  shown.dataset.callNumber = slot.dataset.callNumber ?? '';
  shown.setAttribute('aria-label', 'Answer to the request');
  slot.after(shown);
  fill(body);
  document.querySelector(`[data-toasts-polite] a[href="${link.getAttribute('href')}"]`)?.closest('.toast')?.remove();
  announce('The server requests input. The form is below the call.');
}

function forget() {
  shown?.remove();
  shown = null;
}

/* The card follows its call: with the end of the request its notice goes, and the form with it. */
function follow() {
  const link = waiting();
  if (shown && !results.querySelector(`[data-waiting-question="${shown.dataset.answers}"]`)) forget();
  if (link) show(link).catch(() => {}); // the link of the card still leads to it
}

results?.addEventListener('submit', async (event) => {
  const form = event.target;
  if (form.id !== 'answer-form') return;
  event.preventDefault();
  event.stopPropagation();
  const body = new FormData(form, event.submitter);
  form.inert = true;
  try {
    const sent = send(form.getAttribute('action'), { method: 'POST', body }); // a button is called "action"
    const answer = await whileBusy(shown, sent, 'Sending the answer…');
    const page = await bodyOf(answer);
    if (!page) throw new Error(`mcpadmin answered ${answer.status}`);
    if (page.querySelector('#answer-form')) return fill(page);
    announce('Answer sent');
    forget();
  } catch (problem) {
    explain(problem);
  } finally {
    form.inert = false;
  }
  return undefined;
});

if (results) {
  new MutationObserver(follow).observe(results, { childList: true, subtree: true });
  follow();
}
