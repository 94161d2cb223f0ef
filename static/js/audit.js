/* The filtered log does not grow by itself: it says how many events were written since, and offers to look again. */
import { live } from './live.js';

const notice = document.querySelector('[data-new-events]');
let count = 0;

live.on('audit', 'event', (frame) => {
  count += frame.rows?.length ?? 0;
  if (!notice || !count) return;
  notice.querySelector('[data-slot="count"]').textContent = count === 1 ? '1 new event' : `${count} new events`;
  notice.hidden = false;
});

/* Beside the list, the chosen row is what must be in sight; below it, on narrow windows, the address leads to the details. */
if (matchMedia('(min-width: 1101px)').matches) {
  addEventListener('load', () => document.querySelector('tr[aria-selected=true]')?.scrollIntoView({ block: 'nearest' }));
}
