/* data-copy="text" or data-copy-from="#selector": copies, and briefly confirms it on the button. For an element that
   shows only the beginning of a text, data-full-url is the address of the whole text. */
import { announce } from './dom.js';

/* A text that is still loading: browsers allow copying only during a click or a few seconds after it, so the copy is
   started at once. */
export async function writeLater(coming) {
  if (!navigator.clipboard?.write || !isSecureContext) return write(await coming);
  const blob = coming.then((text) => new Blob([text], { type: 'text/plain' }));
  try {
    await navigator.clipboard.write([new ClipboardItem({ 'text/plain': blob })]);
  } catch (problem) {
    await coming; // its own reason says more
    throw problem;
  }
}

export async function write(text) {
  if (navigator.clipboard && isSecureContext) return navigator.clipboard.writeText(text);
  const focused = document.activeElement;
  const area = document.createElement('textarea'); // plain http on a LAN address has no clipboard API
  area.value = text;
  area.className = 'vh';
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  focused?.focus({ preventScroll: true });
  if (!done) throw new Error('the browser blocked copying');
}

export function copied(button, words) {
  button.dataset.copied = words;
  announce(words);
  setTimeout(() => delete button.dataset.copied, 1_800);
}

/* Characters that servers/kit/visible.py marks are copied as the originals. */
function textIn(source) {
  if (source.value !== undefined) return source.value;
  if (!source.querySelector('[data-hid]')) return source.textContent;
  const whole = source.cloneNode(true);
  for (const mark of whole.querySelectorAll('[data-hid]')) {
    mark.textContent = mark.dataset.hid.split(' ').map((code) => String.fromCodePoint(Number.parseInt(code, 16))).join('');
  }
  return whole.textContent;
}

async function fullText(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`the full text could not be loaded (status ${response.status})`);
  if (response.redirected) throw new Error('you are signed out');
  return response.text();
}

function copyOf(button) {
  const source = button.dataset.copyFrom ? document.querySelector(button.dataset.copyFrom) : null;
  if (source?.dataset.fullUrl) return writeLater(fullText(source.dataset.fullUrl));
  return write(source ? textIn(source) : (button.dataset.copy ?? ''));
}

export function startCopy() {
  document.addEventListener('click', async (event) => {
    const button = event.target.closest('[data-copy], [data-copy-from]');
    if (!button) return;
    let words = 'Copied';
    try {
      await copyOf(button);
    } catch (problem) {
      words = `Not copied: ${problem.message}`;
    }
    copied(button, words);
  });
}
