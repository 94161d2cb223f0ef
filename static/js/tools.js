/* The page of one tool: runs it through the socket, keeps its form in step with the server, shows its calls. */
import { live } from './live.js';

const results = document.getElementById('results');

/* What the form says, as the socket wants it: the fields of the generated form, or the text of JSON mode. */
function givenBy(form) {
  const fields = {};
  for (const [name, value] of new FormData(form)) {
    if (typeof value === 'string') (fields[name] ??= []).push(value);
  }
  const { _mode, _json, _confirm, csrfmiddlewaretoken, ...rest } = fields;
  const given = { confirm: _confirm?.[0] ?? '' };
  return _mode?.[0] === 'json' ? { ...given, json: _json?.[0] ?? '' } : { ...given, form: rest };
}

/* Re-renders the form on the server: structural edits, the switch of mode, and the errors of a refused call. */
async function rerender(form, extra) {
  const body = new FormData(form);
  for (const [name, value] of Object.entries(extra)) body.set(name, value);
  const response = await fetch(form.dataset.formUrl, { method: 'POST', body, headers: { 'HX-Request': 'true' } });
  if (!response.ok) throw new Error(`the form could not be loaded (${response.status})`);
  await htmx.swap({ target: form, swap: 'outerMorph', text: await response.text() });
  return document.getElementById('tool-form');
}

function refuse(form, message) {
  const notice = form.querySelector('[data-call-refused]');
  notice.textContent = message;
  notice.hidden = false;
  notice.focus();
}

function say(form, words) {
  form.querySelector('[data-run-state]').textContent = words;
}

/* Says that the call is on its way, until its card shows the outcome. */
function followWords({ call, number, html }) {
  const state = () => document.querySelector('#tool-form [data-run-state]');
  if (!html?.includes('data-call-progress')) return void (state().textContent = '');
  state().textContent = `Call #${number} is running`;
  const off = live.on(`call.${call}`, 'call', (frame) => {
    if (!frame.rows?.some((row) => row.final)) return;
    off();
    if (state()?.textContent === `Call #${number} is running`) state().textContent = '';
  });
}

function addCard(uid, version, html) {
  if (!results || document.getElementById(`call-${uid}`)) return;
  const slot = document.createElement('div');
  slot.className = 'call-slot';
  slot.id = `call-${uid}`;
  slot.dataset.liveTopic = `call.${uid}`;
  slot.dataset.liveSince = String(version);
  slot.dataset.liveTarget = `call.${uid}`;
  results.prepend(slot);
  htmx.swap({ target: slot, swap: 'innerHTML', text: html });
  document.getElementById('no-results')?.classList.add('vh');
  live.scan(slot);
}

async function run(form) {
  const button = form.querySelector('[data-run]');
  form.querySelector('[data-call-refused]').hidden = true;
  button.disabled = true;
  say(form, 'Sending…');
  const { server, tool } = form.dataset;
  try {
    const answer = await live.request({ op: 'call', server, tool, ...givenBy(form) });
    if (answer.op === 'accepted') {
      addCard(answer.call, answer.version ?? 0, answer.html ?? '');
      followWords(answer);
    } else {
      const shown = await rerender(form, { _validate: '1' });
      const summary = shown.querySelector('[data-sf-errors]');
      if (summary) summary.focus();
      else refuse(shown, answer.message);
      say(shown, '');
    }
  } catch (problem) {
    /* Never sent again by itself: the call may have been accepted before the connection broke. */
    refuse(form, `The answer did not arrive (${problem.message}). Look at the calls at the right before you run it again.`);
    say(form, '');
  } finally {
    document.querySelector('#tool-form [data-run]')?.removeAttribute('disabled');
  }
}

document.addEventListener('submit', (event) => {
  const form = event.target;
  if (!form.matches('[data-tool-form]')) return;
  const button = event.submitter;
  if (button && (button.name === '_op' || button.name === '_switch')) {
    event.preventDefault();
    rerender(form, { [button.name]: button.value }).catch((problem) => refuse(form, problem.message));
  } else if (live.state === 'live') {
    event.preventDefault();
    run(form);
  }
});

/* Cancelling through the socket; without it the button's own form does the same. */
document.addEventListener('submit', (event) => {
  const form = event.target;
  if (!form.matches('[data-cancel-call]') || live.state !== 'live') return;
  event.preventDefault();
  form.querySelector('button').disabled = true;
  live.request({ op: 'cancel', call: form.dataset.cancelCall }).catch(() => form.submit());
});

/* Somebody else's call of the tool shown here: fetch its card once, from then on its own topic keeps it fresh. */
if (results) {
  live.on(`server.${results.dataset.server}`, 'call', async (frame) => {
    for (const row of frame.rows ?? []) {
      if (row.tool !== results.dataset.tool || document.getElementById(`call-${row.uid}`)) continue;
      const response = await fetch(`/calls/${row.uid}/card/`, { headers: { 'HX-Request': 'true' } });
      if (response.ok) addCard(row.uid, row.version, await response.text());
    }
  });
}
