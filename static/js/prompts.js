/* The page of one prompt: requests it through the socket; its messages arrive as the card of the call. */
import { hold, isHeld } from './busy.js';
import { addCard, followWords, refuse, say } from './call-cards.js';
import { showErrors, startCompletion, startEnter } from './completion.js';
import { fillArguments, keepDrafts } from './drafts.js';
import './pick-list.js';
import './saved-calls.js';
import { sendCall, unconfirmed } from './sending.js';

const form = document.getElementById('prompt-form');

/* Empty arguments are not sent: a prompt's argument is present or absent. */
function given() {
  const found = {};
  for (const box of form.querySelectorAll('[data-argument]')) {
    const { value } = box.querySelector('textarea');
    if (value) found[box.dataset.argument] = value;
  }
  return found;
}

/* JSON pointers of one level. */
function byName(errors) {
  const plain = (pointer) => pointer.slice(1).replaceAll('~1', '/').replaceAll('~0', '~');
  return Object.fromEntries(Object.entries(errors ?? {}).map(([pointer, words]) => [plain(pointer), words[0]]));
}

async function run() {
  const button = form.querySelector('[data-run]');
  const { server, prompt } = form.dataset;
  form.querySelector('[data-call-refused]').hidden = true;
  showErrors(form, {});
  const end = hold(button);
  say(form, 'Sending…');
  try {
    const answer = await sendCall(form, { op: 'call', method: 'prompts/get', server, target: prompt, args: given() });
    if (answer.op === 'accepted') {
      addCard(answer.call, answer.version ?? 0, answer.html ?? '', undefined, answer.number);
      followWords(() => form, answer);
    } else {
      say(form, '');
      if (!showErrors(form, byName(answer.errors))) refuse(form, answer.message);
    }
  } catch (problem) {
    /* Never sent again by itself: the call may have been accepted before the connection broke. */
    refuse(form, unconfirmed(problem, 'the results'));
    say(form, '');
  } finally {
    end();
  }
}

startCompletion(form);
startEnter(form);
form?.addEventListener('submit', (event) => {
  event.preventDefault();
  const button = form.querySelector('[data-run]');
  if (button && !isHeld(button)) run();
});

keepDrafts(() => form, { restore: (entries) => fillArguments(form, entries), clear: () => fillArguments(form, []) });
