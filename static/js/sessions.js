/* The page of sessions: when workers or sessions change, it asks for its board with its own permissions. */
import { live } from './live.js';
import { refreshSoon } from './refresh.js';

const page = document.querySelector('[data-sessions-mark]');
live.on('sessions', 'moved', ({ rows: [{ mark }] }) => {
  if (mark === page.dataset.sessionsMark) return;
  page.dataset.sessionsMark = mark;
  refreshSoon('worker-board');
});
