/* Rewrites every <time data-time> in the reader's zone; the server wrote UTC. Works for whatever is added later, too.
   <time data-elapsed> counts the seconds since then. */
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const SELECTOR = 'time[data-time]';
const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const root = document.documentElement;

/* The account's zone: the switch for UTC, else the one that the person chose, else the browser's. */
export function zone() {
  return root.dataset.utc === 'true' ? 'UTC' : chosenZone();
}

let known = null;

export function chosenZone() {
  const name = root.dataset.zone ?? '';
  if (known?.name !== name) known = { name, zone: isZone(name) ? name : OWN_ZONE };
  return known.zone;
}

function isZone(name) {
  try {
    return Boolean(name && Intl.DateTimeFormat('en', { timeZone: name }));
  } catch {
    return false; // another browser may know other zones
  }
}

/* What a clock in the zone shows, as 2026-11-26T13:45:00, and the moment at which it shows that. */
export function wallClock(date) {
  return date.toLocaleString('sv-SE', { timeZone: zone() }).replace(' ', 'T');
}

export function momentOf(text) {
  const given = Date.parse(`${text}Z`);
  let moment = given;
  for (let round = 0; round < 2; round += 1) moment = given - (Date.parse(`${wallClock(new Date(moment))}Z`) - moment);
  return new Date(moment);
}

/* A formatter costs far more to make than to use, and a busy feed writes thousands of times. */
const formatters = new Map();

function parts(date, options) {
  const key = `${zone()} ${Object.entries(options)}`;
  if (!formatters.has(key)) {
    formatters.set(key, new Intl.DateTimeFormat('en-GB', { timeZone: zone(), hourCycle: 'h23', ...options }));
  }
  return formatters.get(key).format(date);
}

function exact(date) {
  const day = parts(date, { day: 'numeric', month: 'short', year: 'numeric' });
  const milliseconds = String(date.getUTCMilliseconds()).padStart(3, '0');
  return `${day}, ${clock(date)}.${milliseconds}`;
}

function clock(date) {
  return parts(date, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

function sameDay(a, b) {
  const options = { day: 'numeric', month: 'numeric', year: 'numeric' };
  return parts(a, options) === parts(b, options);
}

function logStamp(date) {
  const milliseconds = String(date.getUTCMilliseconds()).padStart(3, '0');
  const time = `${clock(date)}.${milliseconds}`;
  return sameDay(date, new Date()) ? time : `${parts(date, dayOf(date))}, ${time}`;
}

/* The year is left out where it is this one. */
function dayOf(date) {
  const year = { year: 'numeric' };
  return { day: 'numeric', month: 'short', ...(parts(date, year) !== parts(new Date(), year) && year) };
}

function relative(date) {
  const difference = date - Date.now();
  const away = Math.abs(difference);
  const say = (count, unit) => (difference > 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`);
  const whole = difference > 0 ? Math.round : Math.floor; // 59.6 min ago is no hour ago
  const [seconds, minutes, hours, days] = [1_000, MINUTE, HOUR, DAY].map((unit) => whole(away / unit));
  if (away < 5_000) return difference > 0 ? 'now' : 'just now';
  if (seconds < 60) return say(seconds, 's');
  if (minutes < 60) return say(minutes, 'min');
  if (hours < 24) return say(hours, 'h');
  if (away < 7 * DAY) return say(days, days === 1 ? 'day' : 'days');
  return parts(date, { day: 'numeric', month: 'short', year: 'numeric' });
}

/* For a time that is passed on to people elsewhere. */
function full(date) {
  const day = { day: 'numeric', month: 'short', year: 'numeric' };
  return parts(date, { ...day, hour: '2-digit', minute: '2-digit', timeZoneName: 'short' });
}

const FORMS = {
  relative,
  exact: logStamp,
  full,
  minute: (date) => parts(date, { ...dayOf(date), hour: '2-digit', minute: '2-digit' }),
  time: clock,
  date: (date) => parts(date, { day: 'numeric', month: 'short', year: 'numeric' }),
};

export function paintTime(element) {
  const date = new Date(element.dateTime);
  if (Number.isNaN(date.getTime())) return;
  const words = (FORMS[element.dataset.time] ?? relative)(date);
  if (element.textContent !== words) element.textContent = words;
  const title = `${exact(date)} ${zone()} · ${date.toISOString()}`;
  if (element.title !== title) element.title = title;
}

function elapsedWords(seconds) {
  if (seconds < 60) return `${seconds} s`;
  const [minutes, rest] = [Math.floor(seconds / 60), seconds % 60];
  if (minutes < 60) return `${minutes} min ${String(rest).padStart(2, '0')} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, '0')} min`;
}

function paintElapsed(element) {
  const words = elapsedWords(Math.max(0, Math.floor((Date.now() - Date.parse(element.dateTime)) / 1000)));
  if (element.textContent !== words) element.textContent = words;
}

function paintAll(root) {
  if (root.matches?.(SELECTOR)) paintTime(root);
  for (const element of root.querySelectorAll?.(SELECTOR) ?? []) paintTime(element);
}

function onMutations(mutations) {
  for (const { target, addedNodes } of mutations) {
    const owner = (target.nodeType === Node.TEXT_NODE ? target.parentElement : target)?.closest?.(SELECTOR);
    if (owner) paintTime(owner);
    for (const node of addedNodes) if (node.nodeType === Node.ELEMENT_NODE) paintAll(node);
  }
}

/* The zone of the page, where it is not the browser's. */
function showZone() {
  const shown = document.querySelector('[data-zone-shown]');
  if (!shown) return;
  const named = new Intl.DateTimeFormat('en-GB', { timeZone: zone(), timeZoneName: 'short' });
  shown.hidden = named.resolvedOptions().timeZone === OWN_ZONE;
  const words = named.formatToParts().find((part) => part.type === 'timeZoneName').value;
  shown.querySelector('[data-zone-words]').textContent = words;
}

let today = '';

function repaint() {
  today = FORMS.date(new Date());
  paintAll(document.body);
  showZone();
}

export function startTimes() {
  repaint();
  new MutationObserver(onMutations).observe(document.body, { childList: true, subtree: true, characterData: true });
  setInterval(() => {
    if (FORMS.date(new Date()) !== today) repaint(); // midnight: what was today's has a date now
    for (const element of document.querySelectorAll('time[data-time=relative]')) paintTime(element);
  }, 10_000);
  setInterval(() => {
    for (const element of document.querySelectorAll('time[data-elapsed]')) paintElapsed(element);
  }, 1_000);
  addEventListener('storage', repaint);
  document.addEventListener('click', (event) => {
    if (event.target.closest('[data-zone-choice], [data-zone-switch]')) repaint();
  });
}
