/* time[data-countdown]: the remaining time, every second; its value is the text at the end. Inside [data-announce-
   left] it is also announced, politely, at five minutes, one minute, thirty and ten seconds. */
import { announce } from './dom.js';

const SAID_AT = [300, 60, 30, 10];
const last = new WeakMap();

function clockWords(seconds) {
  const [minutes, rest] = [Math.floor(seconds / 60), String(seconds % 60).padStart(2, '0')];
  const hours = Math.floor(minutes / 60);
  return hours ? `${hours}:${String(minutes % 60).padStart(2, '0')}:${rest}` : `${minutes}:${rest}`;
}

function leftWords(seconds) {
  return seconds <= 0 ? 'Expired' : clockWords(seconds);
}

function spoken(seconds) {
  return seconds >= 60 ? `${seconds / 60} minute${seconds === 60 ? '' : 's'}` : `${seconds} seconds`;
}

function say(element, seconds) {
  const before = last.get(element) ?? Infinity;
  last.set(element, seconds);
  const what = element.closest('[data-announce-left]')?.dataset.announceLeft;
  const mark = SAID_AT.find((at) => seconds <= at && before > at && before !== Infinity);
  if (what && mark) announce(`${spoken(mark)} left before ${what}`);
}

function tick() {
  for (const element of document.querySelectorAll('time[data-countdown]')) {
    const seconds = Math.max(0, Math.ceil((Date.parse(element.dateTime) - Date.now()) / 1000));
    const words = (seconds <= 0 && element.dataset.countdown) || leftWords(seconds);
    if (element.textContent !== words) element.textContent = words;
    element.classList.toggle('soon', seconds < 60);
    say(element, seconds);
  }
}

export function startCountdowns() {
  tick();
  setInterval(tick, 1_000);
}
