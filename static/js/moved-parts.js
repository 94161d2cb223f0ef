/* Parts of a page that are fetched again when a mark says that something on them moved: `data-moved-by` is the topic. */
import { live } from './live.js';
import { refreshSoon } from './refresh.js';

for (const part of document.querySelectorAll('[data-moved-by]')) {
  /* The answer to a form stands under the form's address; `data-page` is where the same page can be fetched again. */
  if (part.dataset.page) history.replaceState(history.state, '', part.dataset.page);
  let seen = part.dataset.mark;
  live.on(part.dataset.movedBy, 'moved', ({ rows: [{ mark }] }) => {
    if (mark === seen) return;
    seen = mark;
    refreshSoon(...part.dataset.parts.split(' '));
  });
}
