/* The page of one tool: runs it through the socket, keeps its form in step with the server, shows its calls. */
import { addCard, followWords, refuse, say } from './call-cards.js';
import { live } from './live.js';

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

async function run(form) {
  const button = form.querySelector('[data-run]');
  form.querySelector('[data-call-refused]').hidden = true;
  button.disabled = true;
  say(form, 'Sending…');
  const { server, tool } = form.dataset;
  try {
    const answer = await live.request({ op: 'call', server, tool, ...givenBy(form) });
    if (answer.op === 'accepted') {
      addCard(answer.call, answer.version ?? 0, answer.html ?? '', undefined, answer.number);
      followWords(() => document.getElementById('tool-form'), answer);
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
