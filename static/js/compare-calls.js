/* Two calls, selected in the history, are compared side by side. The selection is kept in this browser tab, so that
   the second call can be one of another server. */
import { kept } from './tab-storage.js';

const KEY = `calls-to-compare:${document.body.dataset.user}`; // nobody who signs in later sees them
const bar = document.querySelector('[data-compare-bar]');
const boxes = () => document.querySelectorAll('input[data-compare]');

const chosen = () => JSON.parse(kept(KEY) ?? '[]');
const PLACES = ['00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000001'];

let calls = chosen(); // { uid, label }, the first chosen first

function paint() {
  for (const box of boxes()) box.checked = calls.some((call) => call.uid === box.dataset.compare);
  bar.hidden = !calls.length;
  bar.querySelector('[data-compare-words]').textContent = calls.length === 2
    ? calls.map((call) => call.label).join(' and ')
    : `${calls[0]?.label ?? ''}. Choose a second call, here or in the history of another server.`;
  const link = bar.querySelector('[data-compare-link]');
  link.hidden = calls.length !== 2;
  if (calls.length === 2) link.href = bar.dataset.compareBar.replace(PLACES[0], calls[0].uid).replace(PLACES[1], calls[1].uid);
}

document.addEventListener('change', (event) => {
  const box = event.target.closest('input[data-compare]');
  if (!box) return;
  const { compare: uid, label } = box.dataset;
  calls = calls.filter((call) => call.uid !== uid);
  if (box.checked) calls = [...calls, { uid, label }].slice(-2); // a third replaces the first
  kept(KEY, JSON.stringify(calls));
  paint();
});
bar.querySelector('[data-compare-clear]').addEventListener('click', () => {
  calls = [];
  kept(KEY, JSON.stringify(calls));
  paint();
  boxes()[0]?.focus();
});
new MutationObserver(paint).observe(document.getElementById('history-calls'), { childList: true, subtree: true });
addEventListener('pageshow', () => {
  calls = chosen();
  paint();
});
paint();
