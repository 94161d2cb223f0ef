/* The charts of the overview: clicking a bar opens its calls, dragging opens that range on the page of charts. Their
   numbers follow the page's. */
import { latencyLines, moment, openCalls, stackedBars } from './time-chart.js';

const page = document.querySelector('[data-overview]');
const drawn = new WeakMap(); // slot -> its chart

function zoom(from, to) {
  location.assign(`${page.dataset.charts}?${new URLSearchParams({ since: moment(from), until: moment(to) })}`);
}

function draw() {
  for (const slot of document.querySelectorAll('[data-chart-of]')) {
    const data = JSON.parse(document.querySelector(`[data-name="${slot.dataset.chartOf}"]`).dataset.chart);
    if (drawn.has(slot)) drawn.get(slot).update(data);
    else {
      const chart = data.lines ? latencyLines : stackedBars;
      drawn.set(slot, chart(slot, data, { onRange: zoom, onBar: openCalls(page.dataset.explorer, data.rest) }));
    }
  }
}

draw();
/* Watches only what the server renders, because charts change their slots themselves. The first calls bring the whole
   part. */
const changes = new MutationObserver((found) => {
  if (found.some(({ target }) => target.id === 'overview-charts' || target.closest('#overview-chart-data'))) draw();
});
const charts = document.getElementById('overview-charts');
if (charts) changes.observe(charts, { subtree: true, childList: true, attributes: true, attributeFilter: ['data-chart'] });
