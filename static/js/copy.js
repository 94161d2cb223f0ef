/* data-copy="text" or data-copy-from="#selector": copies, and says so on the button for a moment. Of an element that shows
   only the beginning of a text, data-full-url is the address of all of it. */
import { announce } from './dom.js';

export async function write(text) {
  if (navigator.clipboard && isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement('textarea'); // plain http on a LAN address has no clipboard API
  area.value = text;
  area.className = 'vh';
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  if (!done) throw new Error('the browser blocked copying');
}

export function copied(button, words) {
  button.dataset.copied = words;
  announce(words);
  setTimeout(() => delete button.dataset.copied, 1_800);
}

/* Marked characters (servers/kit/visible.py) stand for themselves in what is copied. */
function textIn(source) {
  if (source.value !== undefined) return source.value;
  if (!source.querySelector('[data-hid]')) return source.textContent;
  const whole = source.cloneNode(true);
  for (const mark of whole.querySelectorAll('[data-hid]')) {
    mark.textContent = mark.dataset.hid.split(' ').map((code) => String.fromCodePoint(Number.parseInt(code, 16))).join('');
  }
  return whole.textContent;
}

async function textOf(button) {
  const source = button.dataset.copyFrom ? document.querySelector(button.dataset.copyFrom) : null;
  if (source?.dataset.fullUrl) {
    const response = await fetch(source.dataset.fullUrl);
    if (!response.ok) throw new Error(`the full text could not be loaded (status ${response.status})`);
    return response.text();
  }
  return source ? textIn(source) : (button.dataset.copy ?? '');
}

export function startCopy() {
  document.addEventListener('click', async (event) => {
    const button = event.target.closest('[data-copy], [data-copy-from]');
    if (!button) return;
    let words = 'Copied';
    try {
      await write(await textOf(button));
    } catch (problem) {
      words = `Not copied: ${problem.message}`;
    }
    copied(button, words);
  });
}
