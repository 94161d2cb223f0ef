/* The view of servers' texts and values (views.js), also before the first paint. */
import { storage } from './dom.js';
import { toast } from './toast.js';

const root = document.documentElement;

function press(within) {
  for (const button of within.querySelectorAll('[data-view]')) {
    const { view, value } = button.dataset;
    const chosen = root.dataset[`view${view}`] ?? button.parentElement.firstElementChild.dataset.value;
    const pressed = String(chosen === value);
    if (button.getAttribute('aria-pressed') !== pressed) button.setAttribute('aria-pressed', pressed);
  }
}

/* Says once if it cannot: an update removed the file of this page's version, or nothing answers. */
let told = false;
function sayIfLost(loading) {
  loading.catch(() => {
    if (!told) toast({ tone: 'warn', title: 'Part of this page could not be loaded', text: 'Reload the page to search and copy results.', action: { label: 'Reload', url: location.href } });
    told = true;
  });
}

/* What only some results need is loaded by the first page that has one. */
function look() {
  press(document);
  if (document.querySelector('[data-json-view]')) sayIfLost(import(document.body.dataset.jsonViewModule));
  if (document.querySelector('[data-read-link]')) sayIfLost(import(document.body.dataset.resultLinksModule));
}

export function startViews() {
  document.addEventListener('click', (event) => {
    const button = event.target.closest('[data-view]');
    if (!button) return;
    const before = button.getBoundingClientRect().top;
    root.dataset[`view${button.dataset.view}`] = button.dataset.value;
    storage(`view-${button.dataset.view}`, button.dataset.value);
    press(document);
    /* What stands above changed its height too: the button stays where it was pressed. */
    button.scrollIntoView({ block: 'nearest' });
    const pane = button.closest('.pane') ?? root;
    pane.scrollTop += button.getBoundingClientRect().top - before;
  });
  look();
  /* Cards arrive later, and a morph restores the markup of the server. */
  new MutationObserver(look).observe(document.body, {
    childList: true,
    subtree: true,
    attributeFilter: ['aria-pressed'],
  });
}
