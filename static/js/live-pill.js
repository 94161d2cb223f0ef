/* The pill in the top bar: Live · 18 ms, Reconnecting in 4 s, Offline, Signed out. */

const WORDS = { connecting: 'Connecting', offline: 'Offline' };

function link(pill) {
  const anchor = document.createElement('a');
  const next = encodeURIComponent(location.pathname + location.search);
  anchor.href = `${document.body.dataset.loginUrl}?next=${next}`;
  anchor.textContent = 'Signed out · sign in';
  pill.querySelector('[data-live-words]').replaceChildren(anchor);
}

function wordsOf({ state, latency, retryAt }) {
  if (state === 'live') return latency === null ? 'Live' : `Live · ${latency} ms`;
  if (state === 'reconnecting') {
    const seconds = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
    return seconds ? `Reconnecting in ${seconds} s` : 'Reconnecting';
  }
  return WORDS[state];
}

export function startPill(live) {
  const pill = document.querySelector('[data-live-pill]');
  if (!pill) return;
  const words = pill.querySelector('[data-live-words]');
  const paint = () => {
    const { connection } = live;
    if (!connection) return;
    const changed = pill.dataset.state !== connection.state;
    pill.dataset.state = connection.state;
    pill.title = connection.state === 'reconnecting' ? `${connection.reason}. Missed events load on return.` : '';
    if (connection.state === 'signed-out') {
      if (changed) link(pill);
      return;
    }
    /* Only a change of state is announced; the milliseconds and the countdown are not. */
    pill.setAttribute('aria-live', changed ? 'polite' : 'off');
    words.textContent = wordsOf(connection);
  };
  pill.hidden = !document.body.dataset.liveTicket;
  live.addEventListener('state', paint);
  setInterval(() => live.state === 'reconnecting' && paint(), 1_000);
}
