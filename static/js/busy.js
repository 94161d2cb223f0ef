/* A region that is loading has aria-busy, which css/feedback.css shows after a moment. Longer waits are also
   announced to screen readers. */
import { announce } from './dom.js';

const LONG_MS = 1_000;
const works = new WeakMap(); // region -> number of pending operations

function count(region, by) {
  const number = (works.get(region) ?? 0) + by;
  works.set(region, number);
  if (number > 0) region.setAttribute('aria-busy', 'true');
  else region.removeAttribute('aria-busy');
}

/* Marks a region (may be null) as busy. Returns a function that ends it. */
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

/* A button whose request is pending keeps the focus (a disabled one would lose it) but sends nothing. Returns a
   function that ends it. */
export function hold(button) {
  button.setAttribute('aria-disabled', 'true');
  return () => button.removeAttribute('aria-disabled');
}

export const isHeld = (button) => button.matches('[aria-disabled=true]');

/* A part that polls every second is not shown as busy, and a failed request is repeated a second later. */
export const followed = (element) => Boolean(element.getAttribute('hx-trigger')?.startsWith('every'));

function onSubmit(event) {
  if (!event.submitter || !isHeld(event.submitter)) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}

/* Requests of htmx for a region, and buttons that are held. */
export function startBusy() {
  document.addEventListener('submit', onSubmit, true);
  const ends = new WeakMap(); // request -> what ends its wait
  document.addEventListener('htmx:before:request', ({ detail: { ctx } }) => {
    if (!followed(ctx.sourceElement)) ends.set(ctx, busy(ctx.target));
  });
  document.addEventListener('htmx:finally:request', ({ detail: { ctx } }) => ends.get(ctx)?.());
}
