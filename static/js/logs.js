/* A server's log: the lines of one session as they arrive. */
import { openConsole, plural, startTab } from './console.js';

function element(row, line, ranks) {
  const slot = (name) => line.querySelector(`[data-part="${name}"]`);
  slot('at').dateTime = row.at;
  slot('level').textContent = row.level;
  if (ranks.includes(row.level)) slot('level').classList.add(row.level);
  slot('source').textContent = row.source;
  slot('text').textContent = row.text;
  if (row.href?.startsWith('/calls/')) slot('call').href = row.href;
  else slot('call').remove();
}

function textOf(line) {
  const words = [...line.children].map((child) => (child instanceof HTMLTimeElement ? child.dateTime : child.textContent));
  return words.map((word) => word.trim().replace(/\s*View call$/, '')).join(' ');
}

export function start(page) {
  const ranks = [...page.querySelector('[data-console-filter]').level.options].map((option) => option.value); // "" first, then in order of severity

  function matches(row, { level, source, text }) {
    if (level.value && ranks.indexOf(row.level) < ranks.indexOf(level.value)) return false;
    if (source.value && row.from !== source.value) return false;
    const words = text.value.trim().toLowerCase();
    return !words || row.text.toLowerCase().includes(words) || row.source.toLowerCase().includes(words);
  }

  const { list, note, close } = openConsole({ page, kind: 'line', noun: 'line', matches, element: (row, line) => element(row, line, ranks) });

  async function copy() {
    const lines = [...list().querySelectorAll('li')].map(textOf);
    try {
      await navigator.clipboard.writeText(`${lines.join('\n')}\n`);
      note(`Copied ${plural(lines.length, 'line')}.`);
    } catch {
      getSelection().selectAllChildren(list()); // plain http on a LAN address has no clipboard API
      note('The browser blocked copying. The lines are selected: press Ctrl+C.');
    }
  }

  const button = page.querySelector('[data-log-copy]');
  button.hidden = false;
  button.addEventListener('click', copy);
  return close;
}

startTab('logs', start);
