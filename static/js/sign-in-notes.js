/* On every page: a message when a session begins to wait for a sign-in, once for each fall. Of the shared ones to those who
   may sign in there, of an own one to its owner. */
import { kept } from './tab-storage.js';
import { toast } from './toast.js';

const PAUSE_MS = 5_000;
const OPENED = 'sign-ins.opened'; // per tab: what fell before it was opened stands on the cards
const TOLD = 'sign-ins.told'; // per tab: "server@when" of the falls that were told
const MOST_TOLD = 100;
const WORDS = {
  sign_in_again: ['requires a new sign-in', 'Sign in again'],
  sign_in: ['requires sign-in', 'Sign in'],
  needs_auth: ['refused the credential', 'View server'],
};

let waiting = new Map(); // server -> its newest row
let timer = 0;
let quietUntil = 0;
let told = [];

function isNews(row, opened) {
  const fall = `${row.server}@${row.fell_at}`;
  if (Date.parse(row.fell_at) <= opened || told.includes(fall)) return false;
  told = [...told, fall].slice(-MOST_TOLD);
  kept(TOLD, told.join(' '));
  return true;
}

function tell(list) {
  timer = 0;
  if (document.hidden || !waiting.size) return;
  const rows = [...waiting.values()];
  waiting = new Map();
  quietUntil = Date.now() + PAUSE_MS;
  if (rows.length === 1) {
    const [row] = rows;
    const [words, label] = WORDS[row.word] ?? WORDS.needs_auth;
    toast({ tone: 'warn', title: `${row.server_name} ${words}`, text: 'Its session waits until this is resolved.', action: { label, url: row.url } });
  } else {
    toast({
      tone: 'warn',
      title: `${rows.length} servers require sign-in`,
      text: rows.slice(0, 3).map((row) => row.server_name).join(', '),
      action: { label: 'Show them', url: list },
    });
  }
}

export function startSignInNotes(live) {
  const list = document.body.dataset.signInNotes;
  if (!list) return;
  const opened = Number(kept(OPENED) ?? kept(OPENED, document.body.dataset.requestedAt));
  told = (kept(TOLD) ?? '').split(' ').filter(Boolean);
  const soon = () => {
    if (!timer) timer = setTimeout(() => tell(list), Math.max(0, quietUntil - Date.now()));
  };
  for (const topic of document.body.dataset.signInTopics.split(' ')) {
    live.on(topic, 'sign_in', (frame) => {
      for (const row of frame.rows ?? []) {
        if (!isNews(row, opened)) continue;
        waiting.set(row.server, row);
        soon();
      }
    });
  }
  document.addEventListener('visibilitychange', () => !document.hidden && soon());
}
