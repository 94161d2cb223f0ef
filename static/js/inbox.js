/* The inbox on every page: the number of open requests, in the side bar and in the title, and an announcement of new
   ones. */
import { dismiss, toast } from './toast.js';

const TITLES = {
  form: (name) => `Input request from “${name}”`,
  url: (name) => `“${name}” wants you to open a link`,
  sampling: (name) => `Sampling request from “${name}”`,
};
const open = new Map(); // uid of a question -> its row
const toasts = new Map();
const heard = new Set(); // uids of questions and approvals since the connection began
let synced = false; // before that, frames report what was already shown
let title = document.title;

function paintCount(entry, count) {
  const badge = entry.querySelector('[data-inbox-count]');
  badge.dataset.inboxCount = String(count);
  badge.setAttribute('aria-label', `${count} waiting`);
  badge.hidden = !count;
  for (const mark of document.querySelectorAll('[data-inbox-mark]')) mark.hidden = !count;
  if (!('inboxAnswers' in entry.dataset)) return;
  document.title = count ? `(${count}) ${title}` : title;
  const icon = document.querySelector('link[rel=icon]');
  icon.dataset.plain ??= icon.href;
  icon.href = count ? icon.dataset.waiting : icon.dataset.plain;
}

function paintServers() {
  for (const badge of document.querySelectorAll('[data-inbox-of]')) {
    const count = [...open.values()].filter((row) => row.server === badge.dataset.inboxOf).length;
    badge.querySelector('[data-inbox-number]').textContent = String(count);
    badge.hidden = !count;
  }
}

/* The page of the list or of this request shows it itself. */
function shownHere(uid) {
  return document.querySelector('[data-inbox-list]') || document.querySelector(`[data-question="${uid}"], [data-answers="${uid}"]`);
}

function tell(entry, row) {
  if (!('inboxAnswers' in entry.dataset) || shownHere(row.question)) return;
  const element = toast({
    tone: 'warn',
    title: (TITLES[row.kind] ?? TITLES.form)(row.server_name),
    text: row.call ? 'A call is waiting for your answer.' : 'The server is waiting for your answer.',
    action: { label: 'Answer', url: `${entry.getAttribute('href')}${row.question}/` },
  });
  if (element) toasts.set(row.question, element);
}

function take(entry, row) {
  heard.add(row.question);
  if (row.state !== 'open') {
    open.delete(row.question);
    dismiss(toasts.get(row.question));
    toasts.delete(row.question);
    return;
  }
  const fresh = !open.has(row.question);
  open.set(row.question, row);
  if (fresh && synced) tell(entry, row);
}

/* An agent's call that needs approval: stored with the requests, so that each is announced once. */
function takeApproval(entry, row) {
  heard.add(row.approval);
  if (row.state !== 'open') {
    open.delete(row.approval);
    dismiss(toasts.get(row.approval));
    toasts.delete(row.approval);
    return;
  }
  const fresh = !open.has(row.approval);
  open.set(row.approval, row);
  const here = document.querySelector(`[data-inbox-list], [data-approval="${row.approval}"]`);
  if (!fresh || !synced || here || !('inboxAnswers' in entry.dataset)) return;
  const element = toast({
    tone: 'warn',
    title: `An agent wants to use “${row.server_name}”`,
    text: 'The call needs approval.',
    action: { label: 'Open', url: `${entry.getAttribute('href')}approvals/${row.approval}/` },
  });
  if (element) toasts.set(row.approval, element);
}

/* Joining the topic reports everything that is open, and nothing that ended long before the connection returned. */
function forgetEnded() {
  for (const uid of open.keys()) {
    if (heard.has(uid)) continue;
    open.delete(uid);
    dismiss(toasts.get(uid));
    toasts.delete(uid);
  }
}

export function startInbox(live) {
  const entry = document.querySelector('[data-inbox-nav]');
  if (!entry) return;
  title = document.title;
  const here = entry.querySelector('[data-inbox-count]').dataset.inboxCount;
  paintCount(entry, Number(here));
  live.on('inbox', 'question', (frame) => {
    for (const row of frame.rows ?? []) take(entry, row);
    if (synced) paintServers();
  });
  live.on('inbox', 'approval', (frame) => {
    for (const row of frame.rows ?? []) takeApproval(entry, row);
  });
  live.on('inbox', 'count', (frame) => paintCount(entry, frame.rows[0].open));
  live.addEventListener('lost', () => heard.clear());
  live.on('inbox', 'synced', () => {
    synced = true;
    forgetEnded();
    paintServers();
  });
}
