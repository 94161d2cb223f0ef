/* A call of this page: waits for the live connection, is sent once, and never again automatically. A tab that gets no
   connection, because the user has too many, submits the form itself. */
import { say } from './call-cards.js';
import { reasonOf } from './dom.js';
import { live, NotSent } from './live.js';
import { SignedOut, signIn } from './sign-in.js';

const WAIT_MS = 20_000;

/* The server refused this tab a connection. */
class Refused extends NotSent {}

function cancelButton(form, cancel) {
  const button = document.createElement('button');
  Object.assign(button, { type: 'button', className: 'btn btn-d sm', textContent: 'Cancel' });
  button.dataset.cancel = '';
  button.addEventListener('click', cancel);
  form.querySelector('[data-run-state]')?.after(button);
  return button;
}

/* Waits for the next change of the connection, at most until `until`; rejects at once when the user cancels. */
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

/* There is no time limit for signing in; a connection has 20 s. */
async function connected(form) {
  const cancelled = new AbortController();
  const button = cancelButton(form, () => cancelled.abort(new NotSent('Cancelled. Nothing was sent.')));
  let until = Date.now() + WAIT_MS;
  live.connection?.retryNow(); // once: each failed attempt changes the state, too
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
      if (live.state === 'live') break;
      await changed(until, cancelled.signal); // the end of an attempt
      if (live.state !== 'live' && live.connection?.refusal) throw new Refused(live.connection.refusal);
    }
  } catch (problem) {
    if (problem instanceof NotSent) throw problem;
    throw new NotSent(problem instanceof SignedOut ? problem.message : `Nothing was sent and your input is kept. ${reasonOf(problem)}`, { cause: problem });
  } finally {
    button.remove();
  }
}

/* Submits the form as without scripts: the response is the page of the call, so there is nothing to resolve with. */
function sendItself(form, name) {
  const extra = Object.assign(document.createElement('input'), { type: 'hidden', name, value: 'yes' });
  form.append(extra);
  form.submit(); // no submit event, which the page would handle again
  extra.remove();
  return new Promise((_, reject) => {
    addEventListener('pageshow', () => reject(new NotSent('This was sent without live updates. Check the history before running it again.')), { once: true });
  });
}

/* Resolves with `accepted` or `rejected`. Throws NotSent if nothing was sent; after any other error, it may have been
   sent. */
export async function sendCall(form, message) {
  try {
    if (live.state !== 'live') await connected(form);
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    say(form, 'Sending…');
    return sendItself(form, message.anyway ? '_anyway' : '');
  }
  say(form, 'Sending…');
  return live.request(message);
}

export function unconfirmed(problem, where) {
  return problem instanceof NotSent ? problem.message : `No confirmation received (${problem.message}). Check ${where} before running it again.`;
}
