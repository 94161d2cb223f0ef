/* Parts that background jobs change, fetched again when one of them moved. */
import { live } from './live.js';
import { refreshSoon } from './refresh.js';

for (const part of document.querySelectorAll('[data-jobs]')) {
  let seen = part.dataset.mark;
  live.on(part.dataset.jobs, 'moved', ({ rows: [{ mark }] }) => {
    if (mark === seen) return;
    seen = mark;
    refreshSoon(...part.dataset.parts.split(' '));
  });
}
