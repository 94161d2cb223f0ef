/* Resource links in results: a click reads the resource, as a call like any other, whose card appears under the link. */
import { hold, isHeld } from './busy.js';
import { addCard, announceEnd, refuse, say } from './call-cards.js';
import { sendCall, unconfirmed } from './sending.js';

document.addEventListener('submit', async (event) => {
  const form = event.target;
  if (!form.matches('[data-read-link]')) return;
  event.preventDefault();
  const button = form.querySelector('button');
  if (isHeld(button)) return;
  const { uri } = Object.fromEntries(new FormData(form));
  form.querySelector('[data-call-refused]').hidden = true;
  const end = hold(button);
  try {
    const answer = await sendCall(form, { op: 'call', method: 'resources/read', server: form.dataset.server, target: uri, args: {} });
    if (answer.op === 'accepted') {
      addCard(answer.call, answer.version ?? 0, answer.html ?? '', form.nextElementSibling);
      announceEnd(answer);
      button.textContent = 'Read again';
    } else refuse(form, answer.message);
  } catch (problem) {
    /* Never sent again by itself: the call may have been accepted before the connection broke. */
    refuse(form, unconfirmed(problem, 'the history of the server'));
  } finally {
    say(form, '');
    end();
  }
});
