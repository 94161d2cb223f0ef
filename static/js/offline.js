/* The notice above a page that has lost its connection: since when, and that no input is lost; or that it gets no
   connection because the user has too many. A short gap, such as a server restart, is left to the live pill. */

const PATIENCE_MS = 4_000;

export function startOffline(live) {
  const notice = document.querySelector('[data-offline] > .notice');
  if (!notice) return;
  const part = (name) => notice.querySelector(`[data-slot=${name}]`);
  let known = new Date(Number(document.body.dataset.requestedAt)); // when the page was last up to date
  let timer = 0;

  /* Writes only what changed: the notice is announced again with each change. */
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
      part('since').textContent = known.toISOString(); // startTimes() shows it in the reader's zone
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

  /* A live page is up to date until it is no longer live. */
  live.addEventListener('lost', () => {
    known = new Date();
  });
  live.addEventListener('state', paint);
  part('retry').addEventListener('click', () => live.connection?.retryNow());
}
