/* The page of one resource: reads it through the socket and shows the content in its place, whoever read it. */
import { addCard, refuse, say } from './call-cards.js';
import { showErrors, startCompletion, startEnter } from './completion.js';
import { live } from './live.js';
import { refreshParts, refreshSoon } from './refresh.js';

const PAUSE_MS = 150;
const form = document.querySelector('[data-read-form]');
const content = document.getElementById('resource-content');

async function refresh(soon) {
  if (soon) return refreshSoon('resource-content');
  await refreshParts('resource-content');
  live.scan(content);
}

/* --- templates: the URI that the fields make --- */
function address(base) {
  const query = new URLSearchParams({ template: form.dataset.template });
  for (const field of form.querySelectorAll('[data-argument] textarea')) if (field.value) query.set(field.name, field.value);
  return `${base}?${query}`;
}

async function expand() {
  const response = await fetch(address(form.dataset.expandUrl), { headers: { Accept: 'application/json' } });
  if (!response.ok) throw new Error(`the URI could not be made (${response.status})`);
  return response.json();
}

function preview({ uri, shown, problem }) {
  document.querySelector('[data-expanded]').textContent = shown;
  document.querySelector('[data-expand-wait]').hidden = Boolean(uri);
  const copy = document.querySelector('[data-copy-uri]');
  copy.hidden = !uri;
  copy.dataset.copy = uri;
  const notice = form.querySelector('[data-template-problem]');
  notice.textContent = problem;
  notice.hidden = !problem;
}

let timer = 0;
let newest = 0;

/* Answers may come in another order than their questions: only the newest counts. */
function previewSoon() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    newest += 1;
    const mine = newest;
    try {
      const made = await expand();
      if (mine === newest) preview(made);
    } catch {
      /* the next key, or reading, tries again */
    }
  }, PAUSE_MS);
}

/* The URI to read; null where a field is missing. The page's address then names what is shown. */
async function target() {
  if (!form.dataset.template) return form.dataset.uri;
  newest += 1;
  const made = await expand();
  preview(made);
  if (showErrors(form, made.errors) || !made.uri) return null;
  form.dataset.uri = made.uri;
  history.replaceState(null, '', address(location.pathname));
  return made.uri;
}

/* --- reading --- */
async function run() {
  const button = form.querySelector('[data-run]');
  form.querySelector('[data-call-refused]').hidden = true;
  button.disabled = true;
  say(form, 'Sending…');
  try {
    const uri = await target();
    if (uri === null) return;
    const { server } = form.dataset;
    const answer = await live.request({ op: 'call', method: 'resources/read', server, target: uri, args: {} });
    if (answer.op === 'accepted') {
      const slot = document.getElementById('read-slot');
      slot.replaceChildren();
      addCard(answer.call, answer.version ?? 0, answer.html ?? '', slot);
      document.getElementById('not-read')?.remove();
    } else refuse(form, answer.message);
  } catch (problem) {
    /* Never sent again by itself: the call may have been accepted before the connection broke. */
    refuse(form, `The answer did not arrive (${problem.message}). Look at the content before you read it again.`);
  } finally {
    say(form, '');
    button.disabled = false;
  }
}

if (form) {
  startCompletion(form);
  startEnter(form);
  form.addEventListener('submit', (event) => {
    if (live.state !== 'live') return;
    event.preventDefault();
    run();
  });
  if (form.dataset.template) {
    form.addEventListener('input', previewSoon);
    form.addEventListener('change', previewSoon);
  }
}

/* Own readings and those of others alike: what they brought is shown, with its age. */
const shown = () => form?.dataset.uri ?? content?.dataset.uri;
if (content?.dataset.live) {
  live.on(`server.${content.dataset.live}`, 'call', (frame) => {
    const mine = (frame.rows ?? []).filter((row) => row.method === 'resources/read' && row.tool === shown());
    if (mine.some((row) => row.final)) refresh(false).catch(() => {});
    else if (mine.some((row) => !document.getElementById(`call-${row.uid}`))) refresh(true);
  });
  if (content.dataset.subscription) {
    live.on(`subscription.${content.dataset.subscription}`, '*', (frame) => frame.rows?.length && refresh(true));
  }
}
