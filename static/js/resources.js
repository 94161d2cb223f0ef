/* The page of one resource: reads it through the socket and shows the content, no matter who read it. */
import { hold, isHeld, whileBusy } from './busy.js';
import { addCard, announceEnd, refuse, say } from './call-cards.js';
import { showErrors, startCompletion, startEnter } from './completion.js';
import { fillArguments, keepDrafts } from './drafts.js';
import { live, NotSent, onReturn } from './live.js';
import './pick-list.js';
import { refreshParts, refreshSoon } from './refresh.js';
import { sendCall, unconfirmed } from './sending.js';
import { send, SignedOut } from './sign-in.js';
import { kept } from './tab-storage.js';

const PAUSE_MS = 150;
const form = document.querySelector('[data-read-form]');
const content = document.getElementById('resource-content');

/* Opened without a selection, the page shows the first resource of its list. Its address now names that one: parts of
   the page are loaded by it, and the list may begin with another one by then. */
const query = new URLSearchParams(location.search);
if (!query.get('uri') && !query.get('template')) {
  if (content?.dataset.uri) query.set('uri', content.dataset.uri);
  else if (form?.dataset.template) query.set('template', form.dataset.template);
  if (`${query}`) history.replaceState(null, '', `?${query}${location.hash}`);
}

async function refresh(soon) {
  if (soon) return refreshSoon('resource-content');
  await refreshParts('resource-content');
  live.scan(content);
}

/* --- templates: the URI that the fields make --- */
function address(base) {
  const url = new URL(base, location.href);
  url.searchParams.set('template', form.dataset.template);
  for (const field of form.querySelectorAll('[data-argument] textarea')) if (field.value) url.searchParams.set(field.name, field.value);
  return url;
}

async function expand(how) {
  const asked = how(address(form.dataset.expandUrl), { headers: { Accept: 'application/json' } });
  const response = await whileBusy(document.querySelector('[data-expanded]')?.parentElement, asked, 'Building the URI…').catch((problem) => {
    if (problem instanceof SignedOut) throw new NotSent(problem.message);
    return null;
  });
  if (!response?.ok) throw new NotSent(`The URI could not be built (${response ? `mcpadmin answered with HTTP ${response.status}` : 'no response from mcpadmin'}). Nothing was sent and your input is kept. Try again.`);
  return response.json();
}

/* The URI whose content is shown. While the fields of a template are edited, the button already belongs to another
   one. */
const shown = () => form?.dataset.uri || content?.dataset.uri;
let buttonOf = shown();

/* Requests for the URI of the fields are numbered: responses may arrive in another order, and only the newest counts. */
let newest = 0;
/* From this request on, the button is replaced even for the same URI, because its subscription changed. */
let changedFrom = Infinity;

/* Replacing the button by the same one would interrupt a click. */
function showButton(uri, html, question) {
  const same = uri === buttonOf;
  if (same && question < changedFrom) return;
  if (question >= changedFrom) changedFrom = Infinity;
  buttonOf = uri;
  htmx.swap({ target: document.getElementById('resource-subscribe'), swap: same ? 'innerMorph' : 'innerHTML', text: html });
}

/* For a template always with the fields: the page knows only the URI that is shown, and may arrive after the next
   key. */
function refreshButton() {
  if (!form?.dataset.template) return refreshSoon('resource-subscribe');
  changedFrom = newest + 1;
  previewSoon();
}

/* From now on the page and its address belong to this URI of the template. */
function show(uri) {
  form.dataset.uri = uri;
  content.dataset.uri = uri;
  history.replaceState(null, '', address(location.pathname));
}

/* The URI that is shown is not the one of the fields. */
function unbuilt(problem) {
  const notice = form.querySelector('[data-template-problem]');
  notice.textContent = problem.message;
  notice.hidden = false;
}

function preview({ uri, shown, problem, subscribe }, question) {
  document.querySelector('[data-expanded]').textContent = shown;
  document.querySelector('[data-expand-wait]').hidden = Boolean(uri);
  const copy = document.querySelector('[data-copy-uri]');
  copy.hidden = !uri;
  copy.dataset.copy = uri;
  const notice = form.querySelector('[data-template-problem]');
  notice.textContent = problem;
  notice.hidden = !problem;
  showButton(uri, subscribe, question);
}

let timer = 0;

function previewSoon() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    newest += 1;
    const mine = newest;
    try {
      const made = await expand(fetch);
      if (mine === newest) preview(made, mine);
    } catch (problem) {
      if (mine === newest) unbuilt(problem); // the next key, or reading, repeats it
    }
  }, PAUSE_MS);
}

/* The URI to read; null if a field is missing. The page's address then names what is shown. */
async function target() {
  if (!form.dataset.template) return form.dataset.uri;
  newest += 1;
  const mine = newest;
  const made = await expand(send);
  preview(made, mine);
  if (showErrors(form, made.errors) || !made.uri) return null;
  show(made.uri);
  return made.uri;
}

/* --- reading --- */
async function run() {
  const button = form.querySelector('[data-run]');
  form.querySelector('[data-call-refused]').hidden = true;
  const end = hold(button);
  say(form, 'Sending…');
  const before = shown();
  const moved = () => shown() !== before;
  const refused = (words) => {
    refuse(form, words);
    if (moved()) refresh(true); // what was read from this URI before
  };
  try {
    const uri = await target();
    if (uri === null) return;
    const { server } = form.dataset;
    const answer = await sendCall(form, { op: 'call', method: 'resources/read', server, target: uri, args: {} });
    if (answer.op === 'accepted') {
      const slot = document.getElementById('read-slot');
      slot.replaceChildren();
      addCard(answer.call, answer.version ?? 0, answer.html ?? '', slot);
      announceEnd(answer);
      /* The content arrives with the result. Until then, the content of another URI must not appear under this one. */
      for (const old of content.querySelectorAll(moved() ? ':scope > :not(#read-slot)' : '#not-read')) old.remove();
    } else refused(answer.message);
  } catch (problem) {
    /* Never sent again by itself: the call may have been accepted before the connection broke. */
    refused(unconfirmed(problem, 'the content'));
  } finally {
    say(form, '');
    end();
  }
}

/* A click in the list means that the user wants to see the content. A link from elsewhere only opens the page. */
document.getElementById('resource-list')?.addEventListener('click', (event) => {
  const link = event.target.closest('a[href^="?uri="]');
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) kept('read', link.href);
});

if (form) {
  if (kept('read') === location.href && document.getElementById('not-read')) run();
  kept('read', null);
  startCompletion(form);
  startEnter(form);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (!isHeld(form.querySelector('[data-run]'))) run();
  });
  if (form.dataset.template) {
    form.addEventListener('input', previewSoon);
    form.addEventListener('change', previewSoon);
    const fill = (entries) => {
      fillArguments(form, entries);
      previewSoon();
    };
    keepDrafts(() => form, { restore: fill, clear: () => fill([]) });
  }
}

/* Content read by this user and by others is shown alike, with its age. */
if (content?.dataset.live) {
  live.on(`server.${content.dataset.live}`, 'call', (frame) => {
    const mine = (frame.rows ?? []).filter((row) => row.method === 'resources/read' && row.tool === shown());
    if (mine.some((row) => row.final)) refresh(false).catch(() => refresh(true)); // repeated with growing delays
    else if (mine.some((row) => !document.getElementById(`call-${row.uid}`))) refresh(true);
  });
}

/* Subscriptions of this server, including new ones: updates the list and, for the shown resource, the button and the
   content that the subscription read. */
const watched = document.getElementById('resource-subscriptions');
const versions = new Map(); // subscription -> the newest version of its row
if (watched) {
  live.on('subscriptions', 'subscription', (frame) => {
    for (const row of frame.rows ?? []) {
      const listed = watched.querySelector(`[data-subscription="${row.subscription}"]`);
      if (row.deleted ? !listed : row.server !== watched.dataset.server) continue;
      if (row.version <= (versions.get(row.subscription) ?? Number(listed?.dataset.version ?? 0))) continue;
      versions.set(row.subscription, row.version ?? Infinity);
      refreshSoon(watched.id);
      if (row.deleted || row.uri === buttonOf) refreshButton();
      if (row.deleted || row.uri === shown()) refresh(true);
    }
  });
  onReturn('subscriptions', () => {
    refreshSoon(watched.id, 'resource-content');
    refreshButton();
  });
  const none = () => !watched.querySelector('li');
  let empty = none();
  new MutationObserver(() => {
    if (empty && !none()) watched.open = true;
    empty = none();
  }).observe(watched, { childList: true, subtree: true });
}

/* A user who subscribes to a URI of a template wants to see it. */
document.getElementById('resource-subscribe')?.addEventListener('submit', () => {
  if (!form?.dataset.template || buttonOf === shown()) return;
  show(buttonOf);
  refresh(true);
}, true);
