/* The board and the page of one subscription: parts of the page are fetched again when their rows changed. */
import { announce } from './dom.js';
import { live } from './live.js';
import { refreshSoon } from './refresh.js';
import { toast } from './toast.js';

const head = document.getElementById('subscription-head');
const page = document.querySelector('[data-subscription-page]');
const board = document.querySelector('[data-subscription-board]');

function leave() {
  toast({
    tone: 'warn',
    title: 'This subscription was deleted',
    action: { label: 'All subscriptions', url: document.querySelector('.crumb a').href },
  });
}

if (page && head) {
  let newest = Number(page.dataset.newest);
  const refresh = () => refreshSoon('subscription-head', 'subscription-history', 'subscription-version', 'subscription-deliveries');
  live.on(`subscription.${page.dataset.subscriptionPage}`, 'subscription', (frame) => {
    for (const row of frame.rows ?? []) {
      if (row.deleted) return leave();
      if (row.mark === head.dataset.mark) continue;
      head.dataset.mark = row.mark;
      if (row.newest > newest) announce(`Version ${row.newest} received`);
      newest = row.newest;
      refresh();
    }
  });
}

if (board) {
  /* The first subscription of all takes the place of the words that there is none. */
  const parts = () => (document.getElementById('subscription-rows') ? ['subscription-rows', 'subscription-numbers'] : [board.id]);
  const refresh = () => refreshSoon(...parts());
  let joined = false;
  live.on('subscriptions', 'subscription', (frame) => {
    for (const row of frame.rows ?? []) {
      const shown = document.querySelector(`[data-subscription-row="${row.subscription}"]`);
      if (shown ? row.deleted || row.version > Number(shown.dataset.version) : joined) refresh();
    }
  });
  /* After a time without connection, whatever moved in it. */
  live.on('subscriptions', 'synced', () => {
    if (joined) refresh();
    joined = true;
  });
}
