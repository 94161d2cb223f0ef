/* The page of one tool: runs it through the socket, keeps its form in step with the server, shows its calls. */
import './answer-here.js';
import { whileBusy } from './busy.js';
import { addCard, followWords, refuse, say } from './call-cards.js';
import { reasonOf } from './dom.js';
import { keepDrafts } from './drafts.js';
import './pick-list.js';
import './saved-calls.js';
import { sendCall, unconfirmed } from './sending.js';
import { explain, send } from './sign-in.js';

const shown = () => document.getElementById('tool-form');
let running = false;

/* What the form says, as the socket wants it: the fields of the generated form, or the text of JSON mode. */
function givenBy(form) {
  const fields = {};
  for (const [name, value] of new FormData(form)) {
    if (typeof value === 'string') (fields[name] ??= []).push(value);
  }
  const { _mode, _json, _confirm, _task, _restored, _anyway, csrfmiddlewaretoken, ...rest } = fields;
  const given = { confirm: _confirm?.[0] ?? '', task: _task !== undefined };
  return _mode?.[0] === 'json' ? { ...given, json: _json?.[0] ?? '' } : { ...given, form: rest };
}

async function render(body, swap) {
  const form = shown();
  const response = await whileBusy(form, send(form.dataset.formUrl, { method: 'POST', body, headers: { 'HX-Request': 'true' } }), 'Loading the form…');
  if (!response.ok) throw new Error(`The form could not be loaded (mcpadmin answered ${response.status}). Your input is kept. Try again.`);
  await htmx.swap({ target: form, swap, text: await response.text() });
  return shown();
}

/* Re-renders the form on the server: structural edits, the switch of mode, and the errors of a refused call. */
async function rerender(form, extra) {
  const body = new FormData(form);
  for (const [name, value] of Object.entries(extra)) body.set(name, value);
  const fresh = await render(body, 'outerMorph');
  drafts.save();
  return fresh;
}

/* A draft is the form as it was sent, so its added items and chosen branches come back too. */
function restored(entries) {
  const body = new FormData();
  for (const [name, value] of entries) body.append(name, value);
  body.append('_restored', '1');
  return render(body, 'outerHTML');
}

const drafts = keepDrafts(shown, {
  restore: (entries) => restored(entries).catch((problem) => refuse(shown(), `Your earlier input could not be restored. ${reasonOf(problem)}`)),
  clear: () => {
    const body = new FormData();
    body.append('_clear', '1');
    render(body, 'outerHTML').then((form) => form.querySelector('h2').focus(), explain);
  },
});

async function run(form, anyway = false) {
  const button = form.querySelector('[data-run]');
  if (running || !button) return;
  running = true;
  form.querySelector('[data-call-refused]').hidden = true;
  button.disabled = true;
  say(form, 'Sending…');
  const { server, tool } = form.dataset;
  try {
    const answer = await sendCall(form, { op: 'call', server, tool, anyway, ...givenBy(form) });
    if (answer.op === 'accepted') {
      addCard(answer.call, answer.version ?? 0, answer.html ?? '', undefined, answer.number);
      followWords(shown, answer);
    } else {
      const fresh = await rerender(form, { _validate: '1' }).catch(() => form); // the refusal says enough
      const summary = fresh.querySelector('[data-sf-errors]');
      if (summary) summary.focus();
      else refuse(fresh, answer.message);
      say(fresh, '');
    }
  } catch (problem) {
    /* Never sent again by itself: the call may have been accepted before the connection broke. */
    refuse(shown(), unconfirmed(problem, 'the calls on the right'));
    say(shown(), '');
  } finally {
    running = false;
    document.querySelector('#tool-form [data-run]')?.removeAttribute('disabled');
  }
}

document.addEventListener('submit', (event) => {
  const form = event.target;
  if (!form.matches('[data-tool-form]')) return;
  const button = event.submitter;
  event.preventDefault();
  if (button && (button.name === '_op' || button.name === '_switch')) {
    rerender(form, { [button.name]: button.value }).catch((problem) => refuse(form, reasonOf(problem)));
  } else run(form, button?.name === '_anyway');
});
