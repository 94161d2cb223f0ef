/* The protocol of a server, docked below any of its tabs. It is the Protocol tab, fetched when it is opened first. */
import { whileBusy } from './busy.js';
import { live } from './live.js';
import { start } from './protocol.js';
import { send } from './sign-in.js';

const LOAD_FAILED = 'The protocol could not be loaded. Close the pane and open it to try again.';

/* Its rows are laid out by these: they are not on the other tabs. */
function loadStyles(source) {
  const known = new Set([...document.querySelectorAll('link[rel=stylesheet]')].map((link) => link.href));
  const missing = [...source.querySelectorAll('link[rel=stylesheet]')].filter((link) => !known.has(new URL(link.getAttribute('href'), location.href).href));
  return Promise.all(missing.map((link) => new Promise((done) => {
    const own = document.importNode(link);
    own.onload = own.onerror = done;
    document.head.append(own);
  })));
}

/* Log and Network have the same names in the same page. */
function renameIds(root) {
  for (const element of root.querySelectorAll('[id]')) element.id = `pane-${element.id}`;
  for (const label of root.querySelectorAll('label[for]')) label.htmlFor = `pane-${label.htmlFor}`;
}

/* Returns what closes it. `onClose` is called when the pane was closed from inside. */
export function openPane(button, { takesFocus, onClose }) {
  const pane = document.querySelector('template[data-wire-pane]').content.firstElementChild.cloneNode(true);
  const status = pane.querySelector('[data-pane-status]');
  const aborted = new AbortController();
  let closeConsole = () => {};

  function close() {
    aborted.abort();
    closeConsole();
    pane.remove();
    live.scan(document.body); // nobody wants its topic any more
  }

  async function load() {
    const base = button.dataset.wirePane;
    const response = await send(base, { headers: { Accept: 'text/html' }, signal: aborted.signal });
    if (!response.ok) throw new Error(`${response.status}`);
    const source = new DOMParser().parseFromString(await response.text(), 'text/html');
    const page = document.importNode(source.querySelector('[data-console-page="protocol"]'), true);
    page.querySelector('[data-wire-open]').remove(); // the address is that of the tab
    renameIds(page);
    await loadStyles(source);
    if (aborted.signal.aborted) return;
    status.remove();
    pane.append(page);
    live.scan(pane); // from the newest message that the page has, before anything else asks for the topic without saying so
    closeConsole = start(page);
    if (document.activeElement === pane.querySelector('[data-pane-close]')) page.querySelector('[data-console-box]').focus({ preventScroll: true });
  }

  pane.addEventListener('click', (event) => {
    const link = event.target.closest('a[href^="?"]'); // older messages: on the tab
    if (link) link.href = button.dataset.wirePane + link.getAttribute('href');
    if (event.target.closest('[data-pane-close]')) onClose();
  });
  pane.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || event.defaultPrevented) return;
    event.preventDefault();
    onClose();
  });
  document.getElementById('main').append(pane);
  if (takesFocus) pane.querySelector('[data-pane-close]').focus();
  whileBusy(pane, load(), 'Loading the protocol…').catch((problem) => {
    if (problem.name !== 'AbortError') status.textContent = LOAD_FAILED;
  });
  return close;
}
