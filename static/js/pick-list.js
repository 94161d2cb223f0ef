/* The lists of tools, resources and prompts: the selected entry is scrolled into view, and Enter in the search opens
   the first hit. A long list comes in parts; the next part, and hits in parts not loaded, come from the server. */
import { whileBusy } from './busy.js';
import { number, reasonOf } from './dom.js';
import './list-filter.js';
import { send } from './sign-in.js';
import { toast } from './toast.js';

const PAUSE_MS = 200;
const CHOICES = new Set(['tool', 'prompt', 'uri', 'template']);

for (const chosen of document.querySelectorAll('.pane a[aria-current]')) {
  const pane = chosen.closest('.pane');
  const [box, row] = [pane.getBoundingClientRect(), chosen.getBoundingClientRect()];
  /* Not scrollIntoView, which would move the page below it too. */
  if (row.height && (row.top < box.top || row.bottom > box.bottom)) pane.scrollTop += row.top - box.top - box.height / 3;
}

/* If the list is truncated, or shows the hits of another search, Enter sends the search to the server, which opens
   its first hit. */
for (const input of document.querySelectorAll('[data-filter-list]')) {
  input.form.addEventListener('submit', (event) => {
    const words = input.value.trim();
    const asked = words !== input.defaultValue && (input.defaultValue || input.hasAttribute('data-list-ask'));
    const hit = [...document.querySelectorAll(`${input.dataset.filterList} [data-filter-text]:not([hidden]) a`)].find((link) => link.checkVisibility());
    if (!words || asked || !hit) return;
    event.preventDefault();
    location.assign(hit.href);
  });
}

/* --- parts --- */
const rows = document.querySelector('[data-list-rows]');

async function partOf(href, part, signal) {
  const address = new URL(href, location);
  address.searchParams.set('part', part);
  const answer = await whileBusy(rows, send(address, { headers: { Accept: 'text/html' }, signal }), 'Loading the list…');
  if (!answer.ok) throw new Error(`mcpadmin answered with HTTP ${answer.status}. Try again.`);
  return answer.text();
}

const failed = (problem) => toast({ tone: 'bad', title: 'The list could not be loaded', text: reasonOf(problem) });

/* Replaces the link to a part by that part. The focus goes to the row after the last one. */
async function join(link) {
  const edge = link.dataset.listMore;
  const list = link.closest('details') ?? rows;
  const known = new Set(rows.querySelectorAll('li'));
  await htmx.swap({ target: link.closest('[data-list-edge]'), swap: 'outerHTML', text: await partOf(link.href, edge) });
  let group = '';
  for (const head of rows.querySelectorAll('[data-group]')) {
    if (head.dataset.group === group) head.remove(); // it continues
    else group = head.dataset.group;
  }
  const all = [...rows.querySelectorAll('li')];
  const listed = list.querySelector('[data-listed]');
  if (listed) listed.textContent = number(list.querySelectorAll('li').length);
  const fresh = all.filter((row) => !known.has(row));
  const next = edge === 'after' ? fresh[0] : fresh.at(-1);
  next?.querySelector('a').focus({ preventScroll: true });
  next?.scrollIntoView({ block: 'nearest' });
}

let joining = false;
rows?.addEventListener('click', async (event) => {
  const link = event.target.closest('[data-list-more]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (joining) return;
  joining = true;
  try {
    await join(link);
  } catch (problem) {
    failed(problem);
  } finally {
    joining = false;
  }
});

for (const input of document.querySelectorAll('[data-list-ask]')) {
  let timer = 0;
  let asking = null; // a late response to an older query is not shown
  const ask = async () => {
    asking?.abort();
    const mine = (asking = new AbortController());
    const address = new URL(input.form.action);
    for (const [name, value] of new URLSearchParams(location.search)) {
      if (CHOICES.has(name)) address.searchParams.set(name, value); // it stays selected
    }
    address.searchParams.set('find', input.value.trim());
    try {
      const text = await partOf(address, 'list', mine.signal);
      if (asking === mine) await htmx.swap({ target: rows, swap: 'innerHTML', text });
    } catch (problem) {
      if (asking === mine) failed(problem);
    }
  };
  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE_MS);
  });
}
