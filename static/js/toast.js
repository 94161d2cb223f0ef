/* Messages in the corner. Success leaves after five seconds; what went wrong stays until it is dismissed. */
import { fromTemplate, slot } from './dom.js';
import { kept } from './tab-storage.js';

const SHOWN_MS = 5_000;
const MOST = 5;
const KEPT = 'toasts.kept'; // per tab: what a page showed before it reloaded itself

/* toast({ title, text, tone: 'info' | 'ok' | 'warn' | 'bad', action: { label, url } }) -> its element */
export function toast({ title, text = '', tone = 'info', action = null }) {
  const urgent = tone === 'bad';
  const region = document.querySelector(urgent ? '[data-toasts-assertive]' : '[data-toasts-polite]');
  const element = fromTemplate('toast');
  if (!region || !element) return null;
  element.classList.add(tone);
  slot(element, 'icon').replaceWith(fromTemplate(`icon-${tone}`));
  slot(element, 'title').textContent = title;
  slot(element, 'text').textContent = text;
  if (action) {
    const link = slot(element, 'action');
    link.hidden = false;
    link.href = action.url;
    link.textContent = action.label;
  }
  while (region.childElementCount >= MOST) region.firstElementChild.remove();
  region.append(element);
  if (!urgent && tone !== 'warn') leaveLater(element);
  return element;
}

function leaveLater(element) {
  let timer = setTimeout(() => element.remove(), SHOWN_MS);
  const stay = () => clearTimeout(timer);
  const go = () => {
    stay();
    timer = setTimeout(() => element.remove(), SHOWN_MS);
  };
  element.addEventListener('pointerenter', stay);
  element.addEventListener('focusin', stay);
  element.addEventListener('pointerleave', go);
  element.addEventListener('focusout', go);
}

function leaveAll(found) {
  for (const element of found) if (element.matches('[data-toast=success], [data-toast=info]')) leaveLater(element);
}

/* Those of another page, which was fetched and parsed. */
export function showMessages(page) {
  const told = [...page.querySelectorAll('[data-toasts-polite] > *')].map((element) => document.adoptNode(element));
  document.querySelector('[data-toasts-polite]')?.append(...told);
  leaveAll(told);
}

/* Before the page reloads itself: what it shows is shown again, because a message of the server comes only once. */
export function keepToasts() {
  const shown = [...document.querySelectorAll('[data-toasts] .toast')].map((element) => {
    const action = element.querySelector('a:not([hidden])');
    return {
      title: element.querySelector('b').textContent,
      text: element.querySelector('b + span')?.textContent ?? '',
      tone: ['ok', 'warn', 'bad'].find((tone) => element.classList.contains(tone)) ?? 'info',
      action: action && { label: action.textContent, url: action.getAttribute('href') },
    };
  });
  kept(KEPT, JSON.stringify(shown));
}

function showKept() {
  for (const one of JSON.parse(kept(KEPT) || '[]')) toast(one);
  kept(KEPT, null);
}

/* What stands at the end of the page can be scrolled out from under them. */
function makeRoom(region) {
  new ResizeObserver(() => {
    const height = region.offsetHeight;
    document.documentElement.style.setProperty('--toasts', height ? `${height + 24}px` : '0px');
  }).observe(region);
}

export function startToasts() {
  const region = document.querySelector('[data-toasts]');
  if (region) makeRoom(region);
  leaveAll(document.querySelectorAll('[data-toast]'));
  showKept();
  document.addEventListener('click', (event) => {
    event.target.closest('[data-toast-close]')?.closest('.toast')?.remove();
  });
}
