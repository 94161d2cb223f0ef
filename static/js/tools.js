/* The page of one tool: runs it through the socket, keeps its form in step with the server, shows its calls. */
import './answer-here.js';
import { hold, whileBusy } from './busy.js';
import { addCard, followWords, refuse, say } from './call-cards.js';
import { reasonOf } from './dom.js';
import { keepDrafts } from './drafts.js';
import './pick-list.js';
import './saved-calls.js';
import { sendCall, unconfirmed } from './sending.js';
import { explain, send } from './sign-in.js';

const shown = () => document.getElementById('tool-form');
let running = false;
let editing = null; // a structural edit or switch of mode that the server has not answered

/* What the form says, as the socket wants it: the fields of the generated form, or the text of JSON mode. */
function givenBy(form) {
  const fields = {};
  for (const [name, value] of new FormData(form)) {
    if (typeof value === 'string') (fields[name] ??= []).push(value);
  }
  const { _mode, _json, _confirm, _unchecked, _task, _restored, _anyway, csrfmiddlewaretoken, ...rest } = fields;
  const given = { confirm: _confirm?.[0] ?? '', unchecked: _unchecked !== undefined, task: _task !== undefined };
  return _mode?.[0] === 'json' ? { ...given, json: _json?.[0] ?? '' } : { ...given, form: rest };
}

async function rendered(body) {
  const form = shown();
  const response = await whileBusy(form, send(form.dataset.formUrl, { method: 'POST', body, headers: { 'HX-Request': 'true' } }), 'Loading the form…');
  if (!response.ok) throw new Error(`The form could not be loaded (mcpadmin answered with HTTP ${response.status}). Your input is kept. Try again.`);
  return response.text();
}

async function render(body) {
  const text = await rendered(body);
  await htmx.swap({ target: shown(), swap: 'outerHTML', text });
  return shown();
}

const entered = (data) => JSON.stringify([...data].filter(([name]) => name !== 'csrfmiddlewaretoken'));

/* Re-renders the form on the server: structural edits, the switch of mode, and the errors of a refused call. Nothing is
   run by it, so it is asked for again where something was typed before the answer came. */
async function rerender(extra) {
  let said;
  let text;
  do {
    const body = new FormData(shown());
    said = entered(body);
    for (const [name, value] of Object.entries(extra)) body.set(name, value);
    text = await rendered(body); // eslint-disable-line no-await-in-loop
  } while (entered(new FormData(shown())) !== said);
  await htmx.swap({ target: shown(), swap: 'outerMorph', text });
  if (!extra._validate) showAsRendered();
  drafts.save();
  return shown();
}

/* An edit moves values to other fields, and a morphed field keeps what was typed into it unless its markup changes. */
function showAsRendered() {
  for (const field of shown().querySelectorAll('[data-sf] :is(input, textarea, option)')) {
    if (field.matches('option')) field.selected = field.defaultSelected;
    else if (field.matches('[type=checkbox]')) field.checked = field.defaultChecked;
    else field.value = field.defaultValue;
  }
}

/* One at a time, because another one would name its item by a place that this one changes. Resolves with whether it is done. */
function edit({ name, value }) {
  editing ??= rerender({ [name]: value })
    .then((form) => {
      form.querySelector('[data-sf-errors]')?.focus(); // the form did not become JSON, and says why
      return true;
    }, (problem) => refuse(shown(), reasonOf(problem)))
    .finally(() => {
      editing = null;
    });
}

const isBox = (field) => ['checkbox', 'radio'].includes(field.type);

function isTyped(field) {
  if (!field.name) return false;
  if (isBox(field)) return field.checked !== field.defaultChecked;
  if (field.localName === 'select') return field.value !== ([...field.options].find((one) => one.defaultSelected) ?? field.options[0])?.value;
  return field.value !== field.defaultValue;
}

/* A draft is the form as it was sent, so its added items and chosen branches come back too. What was typed before it came
   wins over it; a draft without these fields stays away. */
async function restored(entries) {
  const body = new FormData();
  for (const [name, value] of entries) body.append(name, value);
  body.append('_restored', '1');
  const text = await rendered(body);
  const typed = [...shown().elements].filter(isTyped);
  const draft = new DOMParser().parseFromString(text, 'text/html').getElementById('tool-form');
  if (typed.some(({ name }) => !draft.elements.namedItem(name))) return;
  await htmx.swap({ target: shown(), swap: 'outerHTML', text });
  for (const old of typed) {
    const field = [...shown().elements].find(({ name, value }) => name === old.name && (!isBox(old) || value === old.value));
    if (!field) continue;
    if (isBox(old)) field.checked = old.checked;
    else field.value = old.value;
    field.dispatchEvent(new Event('input', { bubbles: true }));
  }
}

const drafts = keepDrafts(shown, {
  restore: (entries) => restored(entries).catch((problem) => refuse(shown(), `Your earlier input could not be restored. ${reasonOf(problem)}`)),
  clear: () => {
    const body = new FormData();
    body.append('_clear', '1');
    render(body).then((form) => form.querySelector('h2').focus(), explain);
  },
});

async function run(form, anyway = false) {
  const button = form.querySelector('[data-run]');
  if (running || !button) return;
  running = true;
  form.querySelector('[data-call-refused]').hidden = true;
  const end = hold(button);
  say(form, 'Sending…');
  const { server, tool } = form.dataset;
  try {
    const answer = await sendCall(form, { op: 'call', server, tool, anyway, ...givenBy(form) });
    if (answer.op === 'accepted') {
      addCard(answer.call, answer.version ?? 0, answer.html ?? '', undefined, answer.number);
      followWords(shown, answer);
    } else {
      const fresh = await rerender({ _validate: '1' }).catch(shown); // the refusal says enough
      const told = fresh.querySelector('[data-tool-changed], [data-sf-errors]');
      if (told) told.focus();
      else refuse(fresh, answer.message);
      say(fresh, '');
    }
  } catch (problem) {
    /* Never sent again by itself: the call may have been accepted before the connection broke. */
    refuse(shown(), unconfirmed(problem, 'the calls on the right'));
    say(shown(), '');
  } finally {
    running = false;
    end();
  }
}

document.addEventListener('submit', (event) => {
  const form = event.target;
  if (!form.matches('[data-tool-form]')) return;
  const button = event.submitter;
  event.preventDefault();
  if (button && (button.name === '_op' || button.name === '_switch')) {
    edit(button);
  } else if (editing) editing.then((done) => done && run(shown(), button?.name === '_anyway')); // what is sent is what is shown then
  else run(form, button?.name === '_anyway');
});
