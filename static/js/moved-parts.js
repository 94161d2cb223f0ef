/* Parts of a page that are reloaded when a mark says that something in them changed: `data-moved-by` is the topic. */
import { live } from './live.js';
import { refreshSoon } from './refresh.js';

for (const part of document.querySelectorAll('[data-moved-by]')) {
  /* The response to a form has the form's address; `data-page` is the address where the same page can be loaded
     again. */
  if (part.dataset.page) history.replaceState(history.state, '', part.dataset.page);
  let seen = part.dataset.mark;
  live.on(part.dataset.movedBy, 'moved', ({ rows: [{ mark }] }) => {
    if (mark === seen) return;
    seen = mark;
    refreshSoon(...part.dataset.parts.split(' '));
  });
}
