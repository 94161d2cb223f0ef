/* Parts of this page as the server would render them now, morphed in; at most one request in two seconds. */
import { showMessages } from './toast.js';

const PAUSE_MS = 2_000;
const wanted = new Set();
let timer = 0;
let last = 0;

async function parsed(response) {
  return new DOMParser().parseFromString(await response.text(), 'text/html');
}

async function morphIn(page, ids) {
  const pairs = ids.map((id) => [document.getElementById(id), page.getElementById(id)]);
  const found = pairs.filter(([shown, fresh]) => shown && fresh);
  await Promise.all(found.map(([target, fresh]) => htmx.swap({ target, swap: 'innerMorph', text: fresh.innerHTML })));
}

export async function refreshParts(...wantedIds) {
  const ids = wantedIds.filter((id) => document.getElementById(id));
  if (!ids.length) return;
  const response = await fetch(location.href, { headers: { Accept: 'text/html' } });
  if (!response.ok || response.redirected) return; // signed out: the live pill says so
  await morphIn(await parsed(response), ids);
}

/* Forms marked data-in-place leave the rest of the page as it is typed: of the page that answers, only the parts are taken
   that `partsOf(page)` names, and what it says in the corner. */
export function sendInPlace(partsOf) {
  document.addEventListener('submit', async (event) => {
    const form = event.target;
    if (!form.matches('form[data-in-place]')) return;
    event.preventDefault();
    try {
      const page = await parsed(await fetch(form.action, { method: 'POST', body: new FormData(form) }));
      const ids = partsOf(page);
      if (!ids.every((id) => page.getElementById(id))) throw new Error('another page');
      await morphIn(page, ids);
      showMessages(page);
    } catch {
      form.submit(); // offline or signed out: the browser shows it
    }
  });
}

export function refreshSoon(...ids) {
  for (const id of ids) wanted.add(id);
  if (timer) return;
  timer = setTimeout(() => {
    timer = 0;
    last = Date.now();
    const now = [...wanted];
    wanted.clear();
    refreshParts(...now).catch(() => {}); // the next change or a reload shows it
  }, Math.max(0, last + PAUSE_MS - Date.now()));
}
