/* The pill in the top bar: Live · 18 ms, Worker not responding for 6 s, Reconnecting in 4 s, Offline, Signed out. It
   says Live only while everything that feeds this page works, not only its socket. */

const WORDS = { connecting: 'Connecting', offline: 'Offline' };

function link(pill) {
  const anchor = document.createElement('a');
  const next = encodeURIComponent(location.pathname + location.search);
  anchor.href = `${document.body.dataset.loginUrl}?next=${next}`;
  anchor.textContent = 'Signed out · sign in';
  pill.querySelector('[data-live-words]').replaceChildren(anchor);
}

const DELAYED = {
  broker: ['Delayed: message broker unreachable', 'Updates are delayed by a few seconds until Redis is reachable again.'],
  database: ['Delayed: database unreachable', 'No updates until it is reachable again.'],
  no_worker: ['No worker is running', 'Sessions stay closed and calls wait until a worker starts.'],
};

function workerWords({ silent, workers, since }) {
  const seconds = Math.max(1, Math.round((Date.now() - since) / 1000));
  const who = workers === 1 ? 'Worker' : `${silent} of ${workers} workers`;
  return [`${who} not responding for ${seconds} s`, `${silent === 1 ? 'Its' : 'Their'} sessions wait until a worker takes over.`];
}

/* [text, explanation] of what does not work behind the socket; null if everything works. */
function delayOf({ state, pipeline }) {
  if (state !== 'live' || !pipeline || pipeline.state === 'ok') return null;
  return pipeline.state === 'worker' ? workerWords(pipeline) : DELAYED[pipeline.state];
}

function wordsOf(connection) {
  const { state, latency, retryAt } = connection;
  const delay = delayOf(connection);
  if (delay) return delay[0];
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
  let shown = '';
  const paint = () => {
    const { connection } = live;
    if (!connection) return;
    const delay = delayOf(connection);
    const state = delay ? `delayed-${connection.pipeline.state}` : connection.state;
    const changed = shown !== state;
    shown = state;
    pill.dataset.state = delay ? 'delayed' : connection.state;
    /* Only a change of state is announced, not the milliseconds or the countdown. */
    pill.setAttribute('aria-live', changed ? 'polite' : 'off');
    const why = connection.state === 'reconnecting' ? `${connection.reason.replace(/\.$/, '')}. Missed events are loaded after reconnecting.` : delay?.[1] ?? '';
    pill.title = why;
    pill.querySelector('[data-live-why]').textContent = why;
    if (connection.state === 'signed-out') {
      if (changed) link(pill);
      return;
    }
    words.textContent = wordsOf(connection);
  };
  pill.hidden = !document.body.dataset.liveTicket;
  live.addEventListener('state', paint);
  setInterval(() => (live.state === 'reconnecting' || shown === 'delayed-worker') && paint(), 1_000);
}
