/* Parts that background jobs change, fetched again when one of them moved. */
import { live } from './live.js';
import { refreshSoon } from './refresh.js';

for (const part of document.querySelectorAll('[data-jobs]')) {
  /* The answer to a form stands under the form's address; `data-page` is where the same page can be fetched again. */
  if (part.dataset.page) history.replaceState(history.state, '', part.dataset.page);
  let seen = part.dataset.mark;
  live.on(part.dataset.jobs, 'moved', ({ rows: [{ mark }] }) => {
    if (mark === seen) return;
    seen = mark;
    refreshSoon(...part.dataset.parts.split(' '));
  });
}
