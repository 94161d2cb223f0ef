/* The pages of the inbox, the list and a single request, follow what others do. */
import { startCountdowns } from './countdown.js';
import { live, onReturn } from './live.js';
import { refreshParts, refreshSoon, sendInPlace } from './refresh.js';
import { unsentOf } from './unsent.js';

startCountdowns();
sendInPlace((answer) => {
  const open = answer.querySelector('[data-question]')?.dataset.state === 'open';
  return open ? ['question-head'] : ['question-head', 'question-body'];
});
document.querySelector('[data-sf-errors]')?.focus();

function listIsBehind(row) {
  const shown = document.querySelector(`[data-question-row="${row.question}"]`);
  return shown ? Number(shown.dataset.version) < row.version : row.state === 'open';
}

if (document.querySelector('[data-inbox-list]')) {
  live.on('inbox', 'question', (frame) => {
    if ((frame.rows ?? []).some(listIsBehind)) refreshSoon('inbox-open', 'inbox-ended');
  });
  live.on('inbox', 'approval', (frame) => {
    if ((frame.rows ?? []).some(approvalIsBehind)) refreshSoon('inbox-approvals', 'inbox-open', 'inbox-decided');
  });
}

function approvalIsBehind(row) {
  const shown = document.querySelector(`[data-approval-row="${row.approval}"]`);
  return shown ? Number(shown.dataset.version) < row.version : row.state === 'open';
}

/* A call that waits for approval: once it is decided or has ended, that replaces the buttons. */
const decision = () => document.querySelector('[data-approval]');
if (decision()) {
  live.on('inbox', 'approval', (frame) => {
    const row = (frame.rows ?? []).find((one) => one.approval === decision().dataset.approval);
    if (row && row.version > Number(decision().dataset.version)) refreshSoon('approval-head', 'approval-body');
  });
}

/* While the request is open, the form keeps what is typed; once it is closed, the outcome replaces it. */
const page = () => document.querySelector('[data-question]');
const form = document.getElementById('answer-form');
if (form) {
  const body = document.getElementById('question-body');
  new MutationObserver((_, observer) => {
    if (form.isConnected) return;
    observer.disconnect();
    const unsent = unsentOf(form);
    if (unsent) body.after(unsent);
  }).observe(body, { childList: true });
}
if (page()) {
  live.on('inbox', 'question', (frame) => {
    const row = (frame.rows ?? []).find((one) => one.question === page().dataset.question);
    if (!row || row.version <= Number(page().dataset.version)) return;
    if (row.state === 'open') refreshSoon('question-head');
    else refreshSoon('question-head', 'question-body');
  });
}

/* After an interruption: no frame reports what ended long ago. The head is loaded first, because the input below is
   kept while the request is open. */
async function catchUp(shown, head, body) {
  if (shown()?.dataset.state !== 'open') return;
  await refreshParts(head).catch(() => refreshSoon(head));
  if (shown().dataset.state !== 'open') refreshSoon(body);
}

onReturn('inbox', () => {
  if (document.querySelector('[data-inbox-list]')) refreshSoon('inbox-approvals', 'inbox-open', 'inbox-decided', 'inbox-ended');
  catchUp(decision, 'approval-head', 'approval-body');
  catchUp(page, 'question-head', 'question-body');
});

/* After the visit, the next step is to confirm it. */
document.addEventListener('click', (event) => {
  if (!event.target.closest('[data-visit]')) return;
  const [visit, done] = [event.target.closest('[data-visit]'), document.querySelector('#answer-form [data-run]')];
  visit.classList.replace('btn-p', 'btn-d');
  done?.classList.replace('btn-d', 'btn-p');
});
