/* Parts of this page as the server would render them now, morphed in; at most one request in two seconds. */
const PAUSE_MS = 2_000;
const wanted = new Set();
let timer = 0;
let last = 0;

export async function refreshParts(...wantedIds) {
  const ids = wantedIds.filter((id) => document.getElementById(id));
  if (!ids.length) return;
  const response = await fetch(location.href, { headers: { Accept: 'text/html' } });
  if (!response.ok || response.redirected) return; // signed out: the live pill says so
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  const pairs = ids.map((id) => [document.getElementById(id), page.getElementById(id)]);
  const found = pairs.filter(([shown, fresh]) => shown && fresh);
  await Promise.all(found.map(([target, fresh]) => htmx.swap({ target, swap: 'innerMorph', text: fresh.innerHTML })));
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
