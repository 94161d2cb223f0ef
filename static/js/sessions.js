/* The page of sessions: each part is swapped when it changed; a worker that came or went draws the board anew. */
import { live } from './live.js';
import { refreshSoon } from './refresh.js';

function shownWorkers() {
  return [...document.querySelectorAll('[data-worker]')].map((card) => card.dataset.worker);
}

live.on('sessions', 'part', (frame) => {
  for (const { part, html } of frame.rows ?? []) {
    const target = document.querySelector(`[data-part="${CSS.escape(part)}"]`);
    if (target) htmx.swap({ target, text: html, swap: 'innerMorph' });
  }
});

live.on('sessions', 'list', (frame) => {
  const workers = frame.rows?.[0]?.workers ?? [];
  if (workers.join() !== shownWorkers().join()) refreshSoon('worker-board');
});
