/* A region whose content is on its way carries aria-busy, which css/feedback.css shows after a moment. What takes longer is
   also said to screen readers. */
import { announce } from './dom.js';

const LONG_MS = 1_000;
const works = new WeakMap(); // region -> how many pieces of work it waits for

function count(region, by) {
  const number = (works.get(region) ?? 0) + by;
  works.set(region, number);
  if (number > 0) region.setAttribute('aria-busy', 'true');
  else region.removeAttribute('aria-busy');
}

/* Begins the wait of a region, which may be null, and returns what ends it. */
export function busy(region, words = 'Loading…') {
  if (!region) return () => {};
  count(region, 1);
  const timer = setTimeout(() => announce(words), LONG_MS);
  return () => {
    clearTimeout(timer);
    count(region, -1);
  };
}

export async function whileBusy(region, work, words) {
  const end = busy(region, words);
  try {
    return await work;
  } finally {
    end();
  }
}

/* A button whose request is on its way keeps the focus, which a disabled one loses; meanwhile it sends nothing. Returns what
   ends it. */
export function hold(button) {
  button.setAttribute('aria-disabled', 'true');
  return () => button.removeAttribute('aria-disabled');
}

export const isHeld = (button) => button.matches('[aria-disabled=true]');

/* A part that asks for itself every second: it is not on its way, and what failed is asked again a second later. */
export const followed = (element) => Boolean(element.getAttribute('hx-trigger')?.startsWith('every'));

function onSubmit(event) {
  if (!event.submitter || !isHeld(event.submitter)) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}

/* What htmx fetches for a region, and buttons that are held. */
export function startBusy() {
  document.addEventListener('submit', onSubmit, true);
  const ends = new WeakMap(); // request -> what ends its wait
  document.addEventListener('htmx:before:request', ({ detail: { ctx } }) => {
    if (!followed(ctx.sourceElement)) ends.set(ctx, busy(ctx.target));
  });
  document.addEventListener('htmx:finally:request', ({ detail: { ctx } }) => ends.get(ctx)?.());
}
