/* Live state of servers, on the overview and on each server's pages: pills in lists, the actions of a server's head, the
   notice that its tools, resources or prompts changed (hint "catalog"), its call history, the connection test. */
import { hold, whileBusy } from './busy.js';
import { onChoice } from './choice.js';
import { copied, writeLater } from './copy.js';
import { startCountdowns } from './countdown.js';
import { number, storage } from './dom.js';
import { live, onReturn } from './live.js';
import { refreshSoon, refreshSoonFrom } from './refresh.js';
import { explain, saidIn, send, SignedOut } from './sign-in.js';
import { keepToasts, toast } from './toast.js';

/* The parts of the overview that count and list what this reader may see. Below charts, only the numbers change. */
function refreshOverview() {
  const charts = document.getElementById('overview-chart-data')
    ? ['overview-chart-data', 'overview-legend', 'overview-points']
    : ['overview-charts'];
  refreshSoon('overview-numbers', 'overview-calls', 'overview-attention', 'overview-servers', ...charts);
}

startCountdowns();

/* The protocol pane beside a tab: whether it is open is stored for this user in this browser. Its script is loaded
   when it opens. */
const paneButton = document.querySelector('button[data-wire-pane]');
if (paneButton) {
  const remembered = `wire-pane.${document.body.dataset.user}`;
  let closePane = null;
  const showPane = async (takesFocus) => {
    paneButton.setAttribute('aria-pressed', 'true');
    const opening = (closePane = () => {});
    const { openPane } = await import('./wire-pane.js').catch(() => ({}));
    if (closePane !== opening) return;
    if (openPane) closePane = openPane(paneButton, { takesFocus, onClose: hidePane });
    else { // an update removed this page's version of the file, or nothing responds
      closePane = null;
      paneButton.setAttribute('aria-pressed', 'false');
      toast({ tone: 'bad', title: 'The protocol could not be loaded', text: 'Reload the page and try again.' });
    }
  };
  const hidePane = () => {
    storage(remembered, 'closed');
    paneButton.setAttribute('aria-pressed', 'false');
    closePane();
    closePane = null;
    paneButton.focus();
  };
  const togglePane = () => {
    if (closePane) {
      hidePane();
      return;
    }
    storage(remembered, 'open');
    showPane(true);
  };
  paneButton.addEventListener('click', togglePane);
  document.addEventListener('keydown', (event) => {
    const typing = event.target.matches?.('input, textarea, select, [role=combobox]') || document.querySelector('dialog[open]');
    if (event.key !== 'p' || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || typing || storage('single-keys') === 'off') return;
    event.preventDefault();
    togglePane();
  });
  if (storage(remembered) === 'open') showPane(false);
}

async function answerTo(form) {
  const answer = await send(form.action, { method: 'POST', body: new FormData(form) });
  if (!answer.ok) throw new Error(`mcpadmin answered with HTTP ${answer.status}`);
  return answer.text();
}

/* A form whose response is a file: with scripts, its text is copied instead. */
document.addEventListener('submit', async (event) => {
  const form = event.target;
  if (!form.matches('[data-copy-answer]')) return;
  event.preventDefault();
  const button = form.querySelector('button');
  try {
    await writeLater(answerTo(form));
    copied(button, 'Copied');
  } catch (problem) {
    if (problem instanceof SignedOut) explain(problem);
    else copied(button, `Not copied: ${problem.message}`);
  }
});

/* A page that is being left is not reloaded: the reload would override the clicked link. */
let leaving = false;
addEventListener('beforeunload', () => {
  leaving = true;
});
addEventListener('pageshow', () => {
  leaving = false;
});

function showAnew() {
  if (leaving) return;
  keepToasts();
  location.reload();
}

/* The server says that something moved, and what, unless it is much or not known. The list then asks for the states of those
   rows that it shows; the overview also counts and names servers that its table has no room for.

   A mark covers all servers, what a frame names only those whose hints came. So the mark of such a frame is not kept: another
   server may have moved with it, and its hint be lost; the next frame without names then finds another mark. */
const rows = document.querySelector('[data-server-rows]');

function statesOf(ids) {
  const uids = ids.filter((id) => id.startsWith('state-')).map((id) => ['server', id.slice('state-'.length)]);
  return `${rows.dataset.states}?${new URLSearchParams(uids)}`;
}

if (rows) {
  live.on('servers', 'moved', ({ rows: [{ mark, servers }] }) => {
    const whole = !servers || Boolean(document.querySelector('[data-overview]'));
    if (whole && mark === rows.dataset.mark) return;
    if (whole) rows.dataset.mark = mark;
    if (document.querySelector('[data-overview]')) {
      refreshOverview();
      return;
    }
    const shown = [...rows.querySelectorAll('[data-server-row]')].map((row) => row.dataset.serverRow);
    const moved = servers ? shown.filter((uid) => servers.includes(uid)) : shown;
    if (moved.length) refreshSoonFrom(statesOf, ...moved.flatMap((uid) => [`state-${uid}`, `why-${uid}`]));
  });
}

if (document.querySelector('#overview-attention') && document.querySelector('[data-inbox-answers]')) {
  live.on('inbox', 'count', (frame) => {
    const shown = document.querySelector('#overview-attention [data-waiting]')?.dataset.waiting ?? 0;
    if (Number(shown) !== frame.rows[0].open) refreshSoon('overview-attention');
  });
}

/* The server says that something moved; each reader's page then counts what they may see. */
const overview = document.querySelector('[data-overview]');
if (overview) {
  live.on('overview', 'moved', ({ rows: [{ mark }] }) => {
    if (mark === overview.dataset.mark) return;
    overview.dataset.mark = mark;
    refreshOverview();
  });
}

/* A person who comes back to the overview sees its present state. */
if (document.getElementById('overview-numbers')) {
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) refreshOverview();
  });
}

/* The empty panel of a tab says the same as the pill in the head, from the same row. */
function paintPanel(row) {
  const panel = document.querySelector('[data-panel]');
  if (!panel || !row.panel) return;
  for (const name of ['title', 'text']) {
    const words = row.panel[name].replaceAll('{what}', panel.dataset.panel);
    const target = panel.querySelector(`[data-panel-${name}]`);
    if (target && target.textContent !== words) target.textContent = words;
  }
}

const actions = document.querySelector('[data-session-actions]');
if (actions) {
  const topic = `server.${actions.dataset.live}`;
  live.on(topic, 'session', (frame) => {
    const focused = actions.contains(document.activeElement) && document.activeElement;
    for (const row of frame.rows ?? []) {
      Object.assign(actions.dataset, { desired: row.desired, phase: row.phase });
      paintPanel(row);
    }
    /* The new phase may hide the button that was pressed. */
    if (focused && !focused.checkVisibility()) [...actions.querySelectorAll('button')].find((button) => button.checkVisibility())?.focus();
    refreshSoon('connection-timeline', 'connection-process', 'panel-actions');
  });
  live.on(topic, 'catalog', (frame) => {
    refreshSoon('panel', 'list-problems', ...[...document.querySelectorAll('[data-catalog-reading]')].map((part) => part.id));
    if ((frame.rows?.[0]?.changed_at ?? '') === actions.dataset.catalog) return;
    const notice = document.querySelector('[data-catalog-changed]');
    if (notice) notice.hidden = false;
    /* A page without any definition has nothing to lose by loading again. */
    else if (document.querySelector('[data-reload-on-catalog]')) showAnew();
  });
}

/* The newest page of a history grows by itself while its top is in sight, filtered by the server as the page is; further
   down, and on older pages, it counts the calls that match. */
const history = document.querySelector('[data-calls-of]');
if (history) {
  const known = (uid) => document.querySelector(`[data-call-row="${uid}"]`);
  const notice = document.querySelector('[data-newer-calls]');
  const newer = new Set();
  const grows = () => history.dataset.newest !== undefined && (document.getElementById('history-calls')?.getBoundingClientRect().top ?? 0) >= 0;
  const matches = (row) => (history.dataset.method === 'all' ? true : history.dataset.method ? row.method === history.dataset.method : row.method !== history.dataset.unlessMethod);
  const showCount = () => {
    notice.querySelector('[data-slot="count"]').textContent = newer.size === 1 ? '1 newer call' : `${number(newer.size)} newer calls`;
    notice.hidden = !newer.size;
  };
  live.on(`server.${history.dataset.callsOf}`, 'call', (frame) => {
    for (const row of frame.rows ?? []) {
      if (known(row.uid)) {
        if (known(row.uid).dataset.callState !== row.state) refreshSoon('history-calls');
      } else if (matches(row) && (!history.dataset.newestCall || row.number > Number(history.dataset.newestCall))) {
        if (grows()) refreshSoon('history-calls');
        else newer.add(row.uid);
      }
    }
    showCount();
  });
  onReturn(`server.${history.dataset.callsOf}`, () => refreshSoon('history-calls'));
  addEventListener('scroll', () => {
    if (!newer.size || !grows()) return;
    newer.clear();
    showCount();
    refreshSoon('history-calls');
  }, { passive: true });
}

/* Verbs whose effect arrives on the socket need no new page. */
document.addEventListener('submit', async (event) => {
  const form = event.target;
  if (!form.matches('form[data-quiet]') || live.state !== 'live') return;
  event.preventDefault();
  const button = form.querySelector('button');
  const end = hold(button);
  try {
    const sent = send(form.action, { method: 'POST', body: new FormData(form), headers: { 'HX-Request': 'true' } });
    const response = await whileBusy(form, sent, 'Sending…');
    if (!response.ok) toast({ tone: 'bad', title: 'Nothing was changed', text: await saidIn(response) });
  } catch (problem) {
    explain(problem);
  } finally {
    end();
  }
});

/* The result grows with each step; it stays in sight until the reader scrolls. */
function keepInView(slot) {
  const growth = new ResizeObserver(() => slot.scrollIntoView({ block: 'nearest' }));
  growth.observe(slot);
  for (const kind of ['wheel', 'touchmove', 'keydown']) addEventListener(kind, () => growth.disconnect(), { once: true, passive: true });
}

/* Test connection keeps the form as it is and shows the steps below it. */
document.addEventListener('submit', async (event) => {
  const button = event.submitter;
  if (!button?.hasAttribute('data-test-connection')) return;
  event.preventDefault();
  const slot = document.getElementById('test-result');
  const end = hold(button);
  try {
    const body = new FormData(event.target, button);
    const sent = send(button.formAction, { method: 'POST', body, headers: { 'HX-Request': 'true' } });
    const response = await whileBusy(slot, sent, 'Sending the test…');
    /* A refusal that shows which field is wrong, or when to try again, is a fragment like the result. */
    if (!response.ok && !response.headers.get('X-Fragment')) {
      toast({ tone: 'bad', title: 'The connection was not tested', text: `${await saidIn(response)} Your input is kept.` });
      return;
    }
    htmx.swap({ target: slot, swap: 'innerHTML', text: await response.text() });
    live.scan(slot);
    if (!slot.hasAttribute('data-beside')) keepInView(slot);
  } catch (problem) {
    explain(problem);
  } finally {
    end();
  }
});

onChoice((select) => select.matches('[data-submit-on-change]'), (select) => select.form.requestSubmit());
