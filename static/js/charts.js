/* Charts of calls: dragging selects the page's range, and clicking a bar opens its calls in the explorer. */
import { latencyLines, moment, openCalls, stackedBars } from './time-chart.js';

const page = document.querySelector('[data-charts]');

function zoom(from, to) {
  const query = new URLSearchParams(location.search);
  query.delete('last');
  query.set('since', moment(from));
  query.set('until', moment(to));
  location.assign(`?${query}`);
}

for (const slot of page.querySelectorAll('[data-chart], [data-latency]')) {
  const data = JSON.parse(slot.dataset.chart ?? slot.dataset.latency);
  (slot.dataset.chart ? stackedBars : latencyLines)(slot, data, { onRange: zoom, onBar: openCalls(page.dataset.charts, data.rest) });
}
for (const hint of page.querySelectorAll('[data-drag-hint]')) hint.hidden = false;
