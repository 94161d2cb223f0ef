/* A call that this page asks for: waits for the live connection, is sent once, and never again by itself. */
import { say } from './call-cards.js';
import { reasonOf } from './dom.js';
import { live } from './live.js';
import { SignedOut, signIn } from './sign-in.js';

const WAIT_MS = 20_000;

/* Nothing has left the page: the message says why, and what was typed stays. */
export class NotSent extends Error {}

function cancelButton(form, cancel) {
  const button = document.createElement('button');
  Object.assign(button, { type: 'button', className: 'btn btn-d sm', textContent: 'Cancel' });
  button.dataset.cancel = '';
  button.addEventListener('click', cancel);
  form.querySelector('[data-run-state]')?.after(button);
  return button;
}

/* Until the next change of the connection, at most until `until`; rejects at once when the person cancels. */
function changed(until, signal) {
  return new Promise((resolve, reject) => {
    const stop = new AbortController();
    const end = (act, value) => {
      stop.abort();
      clearTimeout(timer);
      act(value);
    };
    const timer = setTimeout(() => end(resolve), Math.max(0, until - Date.now()));
    live.addEventListener('state', () => end(resolve), { signal: stop.signal });
    signal.addEventListener('abort', () => end(reject, signal.reason), { signal: stop.signal });
  });
}

/* Signing in takes a person as long as it takes; a connection has 20 s. */
async function connected(form) {
  const cancelled = new AbortController();
  const button = cancelButton(form, () => cancelled.abort(new NotSent('Cancelled. Nothing was sent.')));
  let until = Date.now() + WAIT_MS;
  live.connection?.retryNow(); // once: each failed attempt is a change of the state, too
  try {
    while (live.state !== 'live') {
      if (Date.now() >= until) throw new NotSent(`No live connection to mcpadmin for ${WAIT_MS / 1000} s. Nothing was sent and your input is kept. Check that mcpadmin is running and this device is online, then run it again.`);
      if (live.state === 'signed-out') {
        say(form, 'Waiting for your sign-in…');
        await signIn();
        cancelled.signal.throwIfAborted();
        until = Date.now() + WAIT_MS;
      }
      say(form, 'Connecting…');
      if (live.state !== 'live') await changed(until, cancelled.signal);
    }
  } catch (problem) {
    if (problem instanceof NotSent) throw problem;
    throw new NotSent(problem instanceof SignedOut ? problem.message : `Nothing was sent and your input is kept. ${reasonOf(problem)}`, { cause: problem });
  } finally {
    button.remove();
  }
}

/* Resolves with `accepted` or `rejected`. Throws NotSent while nothing has left; any other error may come after it did. */
export async function sendCall(form, message) {
  if (live.state !== 'live') await connected(form);
  say(form, 'Sending…');
  return live.request(message);
}

export function unconfirmed(problem, where) {
  return problem instanceof NotSent ? problem.message : `No confirmation received (${problem.message}). Check ${where} before running it again.`;
}
