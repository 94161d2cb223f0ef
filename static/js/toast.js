/* Messages in the corner. Success leaves after five seconds in sight; what went wrong, or has a link, stays until it is
   dismissed. */
import { fromTemplate, slot } from './dom.js';
import { kept } from './tab-storage.js';

const SHOWN_MS = 5_000;
const SAID_MS = 300; // a screen reader says what is added to a live region that it knows
const MOST = 5;
const KEPT = 'toasts.kept'; // per tab: what a page showed before it reloaded itself

const toasts = () => [...document.querySelectorAll('[data-toasts] .toast')];
const regionOf = (urgent) => document.querySelector(urgent ? '[data-toasts-assertive]' : '[data-toasts-polite]');

/* toast({ title, text, tone: 'info' | 'ok' | 'warn' | 'bad', action: { label, url } }) -> its element */
export function toast({ title, text = '', tone = 'info', action = null }) {
  const urgent = tone === 'bad';
  const region = regionOf(urgent);
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
  while (region.childElementCount >= MOST) dismiss(region.firstElementChild);
  region.append(element);
  if (!urgent && tone !== 'warn' && !action) leaveLater(element);
  return element;
}

let before = null; // what had the focus before it came to the messages

/* The focus of one that goes passes to the next, else back to where it came from. */
export function dismiss(element) {
  if (!element?.isConnected) return;
  if (element.contains(document.activeElement)) {
    const all = toasts();
    const at = all.indexOf(element);
    const next = all[at + 1] ?? all[at - 1];
    const back = before?.isConnected && before.checkVisibility() ? before : document.getElementById('main');
    (next?.querySelector('[data-toast-close]') ?? back).focus({ preventScroll: !next });
  }
  element.remove();
}

function leaveLater(element) {
  let timer = 0;
  const stay = () => clearTimeout(timer);
  const go = () => {
    stay();
    if (document.hidden) document.addEventListener('visibilitychange', go, { once: true });
    else timer = setTimeout(() => dismiss(element), SHOWN_MS);
  };
  element.addEventListener('pointerenter', stay);
  element.addEventListener('focusin', stay);
  element.addEventListener('pointerleave', () => element.contains(document.activeElement) || go());
  element.addEventListener('focusout', () => element.matches(':hover') || go());
  go();
}

function leaveAll(found) {
  for (const element of found) if (element.matches('[data-toast=success], [data-toast=info]')) leaveLater(element);
}

/* Those that the server rendered into a page. */
const messagesOf = (page) => [...page.querySelectorAll('[data-toast]')];

function show(messages) {
  for (const element of messages) regionOf(element.dataset.toast === 'error')?.append(element);
}

/* Those of another page, which was fetched and parsed. */
export function showMessages(page) {
  const told = messagesOf(page).map((element) => document.adoptNode(element));
  show(told);
  leaveAll(told);
}

/* Before the page reloads itself: what it shows is shown again, because a message of the server comes only once. */
export function keepToasts() {
  const shown = toasts().map((element) => {
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
    document.documentElement.style.setProperty('--toasts', `${height && height + 8}px`);
  }).observe(region);
}

export function startToasts() {
  const region = document.querySelector('[data-toasts]');
  if (region) makeRoom(region);
  region?.addEventListener('focusin', ({ relatedTarget }) => {
    if (!region.contains(relatedTarget)) before = relatedTarget;
  });
  leaveAll(messagesOf(document));
  setTimeout(() => show(messagesOf(document)), SAID_MS);
  showKept();
  document.addEventListener('click', (event) => {
    dismiss(event.target.closest('[data-toast-close]')?.closest('.toast'));
  });
}
