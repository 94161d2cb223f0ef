/* The notice above a page that has lost its connection: since when it stands still, and that nothing is lost by waiting; or
   that it gets none, because the person has too many. A short gap, as when the server restarts, is left to the live pill. */

const PATIENCE_MS = 4_000;

export function startOffline(live) {
  const notice = document.querySelector('[data-offline] > .notice');
  if (!notice) return;
  const part = (name) => notice.querySelector(`[data-slot=${name}]`);
  let known = new Date(Number(document.body.dataset.requestedAt)); // the last moment at which the page was right
  let timer = 0;

  /* Only what changes: the notice is said again with each change of it. */
  function write(name, words) {
    if (part(name).textContent !== words) part(name).textContent = words;
  }

  function show() {
    timer = 0;
    const refusal = live.state === 'offline' ? '' : live.connection.refusal;
    write('title', live.state === 'offline' ? 'You are offline' : refusal ? 'No live updates in this tab' : 'No connection to mcpadmin');
    write('refusal', refusal && `${refusal} Close another tab, then reconnect. This tab works without live updates.`);
    part('away').hidden = Boolean(refusal);
    if (part('since').dateTime !== known.toISOString()) {
      part('since').dateTime = known.toISOString();
      part('since').textContent = known.toISOString(); // startTimes() writes it in the reader's zone
    }
    notice.hidden = false;
  }

  function paint() {
    const { state } = live;
    const away = state === 'offline' || state === 'reconnecting';
    if (state === 'live' || state === 'signed-out') {
      clearTimeout(timer);
      timer = 0;
      notice.hidden = true;
    } else if (away && !notice.hidden) show();
    else if (state === 'offline') {
      clearTimeout(timer);
      show();
    } else if (away) timer ||= setTimeout(show, PATIENCE_MS);
    if (state === 'live') known = new Date();
  }

  /* A live page is right until the moment at which it is not. */
  live.addEventListener('lost', () => {
    known = new Date();
  });
  live.addEventListener('state', paint);
  part('retry').addEventListener('click', () => live.connection?.retryNow());
}
