/* Charts over time with uPlot: stacked bars by outcome, and lines of percentiles. Each has its table in the page. */
import { zone } from './time.js';

const AXIS_FONT = '11px "Inter Var", system-ui';
const charts = new Set();

function colour(name) {
  const probe = document.createElement('i');
  probe.className = `c-${name}`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function stamp(seconds, options) {
  return new Intl.DateTimeFormat('en-GB', { timeZone: zone(), hourCycle: 'h23', ...options }).format(new Date(seconds * 1000));
}

/* Labels as long as the distance between two of them needs. */
function timeLabels(_, values) {
  const distance = values.length > 1 ? values[1] - values[0] : 0;
  return values.map((value) => {
    const clock = stamp(value, { hour: '2-digit', minute: '2-digit', ...(distance < 60 && { second: '2-digit' }) });
    return distance >= 86_400 || clock === '00:00' ? stamp(value, { day: 'numeric', month: 'short' }) : clock;
  });
}

/* ISO 8601 in UTC, as addresses carry it. */
export function moment(seconds) {
  return new Date(seconds * 1000).toISOString().replace('.000Z', 'Z');
}

/* For onBar: the calls of a bar, in the explorer at this address. `rest`: conditions besides the range. */
export function openCalls(explorer, rest) {
  return (from, to) => {
    const query = new URLSearchParams({ q: `since:${moment(from)} until:${moment(to)} ${rest}`.trim() });
    location.assign(`${explorer}?${query}`);
  };
}

function axes(yLabels) {
  const base = { stroke: colour('axis'), font: AXIS_FONT, ticks: { show: false } };
  const grid = { stroke: colour('grid'), width: 1 };
  return [
    { ...base, grid: { show: false }, size: 26, space: 70, values: timeLabels },
    { ...base, grid, size: 52, space: 34, values: (_, values) => values.map(yLabels) },
  ];
}

class TimeChart {
  #slot;
  #data;
  #make;
  #plot = null;
  #made; // from the newest data
  #tip;
  #width = 0;

  constructor(slot, data, make) {
    [this.#slot, this.#data, this.#make] = [slot, data, make];
    this.#tip = document.createElement('div');
    this.#tip.className = 'chart-tip';
    this.#tip.hidden = true;
    this.draw();
    const resized = new ResizeObserver(() => {
      if (!slot.isConnected) { // another one took its place
        charts.delete(this);
        resized.disconnect();
      }
      if (this.#width !== slot.clientWidth) this.draw();
    });
    resized.observe(slot);
    charts.add(this);
  }

  get shown() {
    return this.#slot.isConnected;
  }

  /* New numbers in the same chart: what the cursor shows stays where it is. */
  update(data) {
    const same = JSON.stringify(namesIn(data)) === JSON.stringify(namesIn(this.#data));
    this.#data = data;
    if (!this.#plot || !same) {
      this.draw();
      return;
    }
    this.#made = this.#make(data);
    this.#plot.setData(this.#made.columns); // which asks for the ranges of both axes
  }

  draw() {
    this.#plot?.destroy();
    this.#plot = null;
    this.#width = this.#slot.clientWidth;
    if (!this.#width) return;
    this.#made = this.#make(this.#data);
    const { options, columns, onRange } = this.#made;
    let dragged = false;
    this.#plot = new uPlot(
      {
        width: this.#width,
        height: 150,
        padding: [8, 26, 0, 0],
        legend: { show: false },
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone()),
        cursor: { y: false, points: { show: false }, drag: { x: Boolean(onRange), y: false, setScale: false } },
        hooks: {
          setCursor: [(plot) => this.#showTip(plot, this.#made.tip)],
          setSelect: [
            (plot) => {
              const { left, width } = plot.select;
              if (width < 4 || !onRange) return;
              dragged = true;
              this.#made.onRange(plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x'));
            },
          ],
        },
        ...options,
        scales: { x: { range: () => this.#made.between }, y: { range: (_, __, most) => this.#made.upTo(most) } },
      },
      columns,
      this.#slot,
    );
    this.#plot.over.addEventListener('mousedown', () => {
      dragged = false;
    });
    this.#plot.over.addEventListener('click', () => {
      const at = this.#plot.cursor.idx;
      const { onBar, columns: [xs] } = this.#made;
      if (!dragged && onBar && at !== null && at !== undefined) onBar(xs[at]);
    });
    this.#plot.over.append(this.#tip);
  }

  #showTip(plot, tip) {
    const at = plot.cursor.idx;
    this.#tip.hidden = at === null || at === undefined || plot.cursor.left < 0;
    if (this.#tip.hidden) return;
    const lines = tip(at).map(([name, words]) => {
      const line = document.createElement('div');
      const mark = document.createElement('i');
      mark.className = `b-${name}`;
      line.append(...(name ? [mark] : []), words);
      return line;
    });
    this.#tip.replaceChildren(...lines);
    const right = plot.cursor.left > plot.over.clientWidth / 2;
    this.#tip.style.left = right ? 'auto' : `${plot.cursor.left + 12}px`;
    this.#tip.style.right = right ? `${plot.over.clientWidth - plot.cursor.left + 12}px` : 'auto';
  }
}

function namesIn({ series, lines }) {
  return [series, lines].map((found) => found?.map(({ name, label }) => [name, label]));
}

function times({ start, step, series, lines }) {
  return (series?.[0]?.counts ?? lines?.[0]?.values ?? []).map((_, place) => start + place * step);
}

function between({ start, step }, xs) {
  return [start, start + Math.max(1, xs.length) * step];
}

function range({ start, step }, from, to) {
  const first = Math.floor((from - start) / step);
  const last = Math.max(first + 1, Math.ceil((to - start) / step));
  return [start + first * step, start + last * step];
}

/* The first and the last bar are cut at the ends of the range. */
function within({ since, until }, from, to) {
  return [Math.max(from, since ?? from), Math.min(to, until ?? to)];
}

function when({ step }, at) {
  const options = { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', ...(step < 60 && { second: '2-digit' }) };
  return `${stamp(at, options)} – ${stamp(at + step, options)}`;
}

/* onRange(from, to) after dragging and onBar(from, to) after a click, in seconds, at the edges of bars or of the range. */
export function stackedBars(slot, first, { onRange, onBar }) {
  return new TimeChart(slot, first, (data) => {
    const xs = times(data);
    const bars = uPlot.paths.bars({ size: [0.76, 22], radius: 0.12, align: 1 });
    const sums = xs.map(() => 0);
    const stacked = data.series.map(({ name, counts }) => {
      counts.forEach((count, place) => {
        sums[place] += count;
      });
      const fill = colour(name);
      return { values: [...sums], series: { fill, stroke: fill, width: 0, paths: bars, points: { show: false } } };
    });
    stacked.reverse(); // the highest sum is drawn first, the others over it
    return {
      columns: [xs, ...stacked.map(({ values }) => values)],
      onRange: onRange && ((from, to) => onRange(...within(data, ...range(data, from, to)))),
      onBar: onBar && ((at) => onBar(...within(data, at, at + data.step))),
      tip: (at) => [
        ['', when(data, xs[at])],
        ...data.series.filter(({ counts }) => counts[at]).map(({ name, label, counts }) => [name, `${label} ${counts[at].toLocaleString('en')}`]),
      ],
      between: between(data, xs),
      upTo: (most) => [0, Math.max(1, most) * 1.08],
      options: {
        axes: axes((value) => (Number.isInteger(value) ? value.toLocaleString('en') : '')),
        series: [{}, ...stacked.map(({ series }) => series)],
      },
    };
  });
}

export function milliseconds(value) {
  if (value < 1) return value ? '<1 ms' : '0';
  if (value < 1_000) return `${Math.round(value)} ms`;
  return value < 60_000 ? `${(value / 1_000).toFixed(value < 10_000 ? 1 : 0)} s` : `${Math.round(value / 60_000)} min`;
}

export function latencyLines(slot, first, { onRange, onBar }) {
  return new TimeChart(slot, first, (data) => linesOf(data, times(data), onRange, onBar));
}

function linesOf(data, xs, onRange, onBar) {
  return {
    columns: [xs, ...data.lines.map(({ values }) => values)],
    onRange: onRange && ((from, to) => onRange(...within(data, ...range(data, from, to)))),
    onBar: onBar && ((at) => onBar(...within(data, at, at + data.step))),
    tip: (at) => [
      ['', when(data, xs[at])],
      ...data.lines.filter(({ values }) => values[at] !== null).map(({ name, label, values }) => [name, `${label} ${milliseconds(values[at])}`]),
    ],
    between: between(data, xs),
    upTo: (most) => [0, (most || 1) * 1.08],
    options: {
      axes: axes(milliseconds),
      series: [
        {},
        ...data.lines.map(({ name }) => ({ stroke: colour(name), width: 1.5, spanGaps: false, points: { show: true, size: 4, fill: colour(name) } })),
      ],
    },
  };
}

/* Colours and labels follow theme and zone. */
function redraw() {
  for (const chart of charts) {
    if (chart.shown) chart.draw();
    else charts.delete(chart);
  }
}

new MutationObserver(redraw).observe(document.documentElement, { attributes: true, attributeFilter: ['data-bs-theme'] });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
document.addEventListener('click', (event) => {
  if (event.target.closest('[data-zone-choice], [data-zone-switch]')) redraw();
});
