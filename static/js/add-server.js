/* Add server: while someone types, the server interprets the text and fills the fields; a URL is then tested. A
   command would start a process, and a secret must not go to a half-typed host, so these are tested only on request. */
import { isHeld, whileBusy } from './busy.js';
import { form, keepPlace, keepRows, sameControl, showForm } from './server-form.js';
import { explain, send, SignedOut } from './sign-in.js';
import { toast } from './toast.js';

const READ_MS = 350;
const TEST_MS = 900;
/* The number of tests per minute is limited; these leave most of them unused. */
const UNASKED_A_MINUTE = 4;
const source = document.getElementById('source');
const testButton = form.querySelector('[data-test-connection]');
const corrected = new Set();
let readTimer = 0;
let testTimer = 0;
let reading = 0;
let tested = '';
let unasked = [];
let byHand = source.value !== source.defaultValue; // the URL was typed, so it may not be whole yet

const part = (id) => document.getElementById(id);

/* The text that #understood was read from. While it is the same, only the requested values are typed. */
const readFrom = (text) => JSON.stringify([text, form.elements.source_index?.value ?? '0']);
let understood = readFrom(source.defaultValue);

/* The fields of requested values are kept; the summary of the server, with its access, is replaced. */
function showNotes(parts) {
  for (const id of ['understood-entry', 'understood-notes']) {
    const now = parts.getElementById(id);
    if (now && !part(id)?.isEqualNode(now)) part(id)?.replaceWith(now);
  }
}

/* The fields that the connection depends on. */
function connection() {
  const names = /^(transport|url|command|arguments|values-.*|need-.*|credentials|source)$/;
  return JSON.stringify([...new FormData(form)].filter(([name]) => names.test(name)));
}

function isWebAddress() {
  const { transport, url } = form.elements;
  if (transport.value === 'stdio' || !URL.canParse(url.value)) return false;
  const { hostname, protocol } = new URL(url.value);
  return /^(https?|wss?):$/.test(protocol) && hostname !== '';
}

/* Whether a test would send a secret: in a row, as a requested value, or in the URL itself. The input box contains
   those of empty rows. */
function sendsSecret() {
  const { username, password, searchParams } = new URL(form.elements.url.value);
  const secretNames = new RegExp(form.querySelector('[data-secret-names]').dataset.secretNames, 'i');
  const rows = [...form.querySelectorAll('[data-value-row]')].filter((row) => !row.hidden && row.querySelector('[name$="-name"]').value);
  return (
    Boolean(username || password || form.querySelector('[data-need][type=password]')) ||
    [...searchParams.keys()].some((name) => secretNames.test(name)) ||
    rows.some((row) => row.querySelector('[name$="-secret"]').checked)
  );
}

/* Automatic tests: URLs only, only if nothing is missing, no secret to a typed address, each address only once. */
function testSoon() {
  clearTimeout(testTimer);
  testTimer = setTimeout(() => {
    if (!isWebAddress() || [...form.querySelectorAll('[data-need]')].some((field) => !field.value.trim())) return;
    if (byHand && sendsSecret()) return;
    if (isHeld(testButton)) return testSoon();
    if (connection() === tested) return;
    unasked = unasked.filter((at) => performance.now() - at < 60_000);
    if (unasked.length >= UNASKED_A_MINUTE) return;
    unasked.push(performance.now());
    form.requestSubmit(testButton);
  }, TEST_MS);
}

form.addEventListener('submit', (event) => {
  if (event.submitter === testButton) tested = connection();
});

/* Manual corrections survive when the text is read again; those that identify the server only if the text is the
   same. */
const fieldsOf = (name) => [...form.querySelectorAll(`[name="${name}"]`)];

function corrections() {
  return [...corrected].flatMap(fieldsOf).map(({ name, type, value, checked }) => ({ name, type, value, checked }));
}

function restore(kept) {
  for (const { name, type, value, checked } of kept) {
    const isBox = type === 'checkbox';
    const field = fieldsOf(name).find((one) => !isBox || one.value === value); // stored credentials share a name
    if (!field) continue;
    if (isBox) field.checked = checked;
    else field.value = value;
  }
}

/* A requested value becomes part of these fields and replaces their corrections. */
function tellReplaced(fields) {
  const names = fields.map((field) => field.labels[0].textContent.trim()).join(', ');
  if (names) toast({ tone: 'warn', title: `Your change was replaced: ${names}`, text: 'A value that you entered is part of it. Check it before you register the server.' });
}

/* Restores focus and caret in the fields that replaced these. */
function focusAgain(focused, before) {
  if (!before.contains(focused)) return;
  const now = sameControl(focused, before);
  now?.focus({ preventScroll: true });
  if (typeof focused.selectionStart === 'number') now?.setSelectionRange(focused.selectionStart, focused.selectionEnd);
}

/* Only one request at a time; if the text changes meanwhile, it runs again afterwards. */
let complaint = null;
function unread(reason) {
  if (complaint?.isConnected) return;
  complaint = toast({ tone: 'bad', title: 'Your input could not be read', text: `${reason} Your input is kept and is read again when you change it. You can also fill in the fields below by hand.` });
}

async function read() {
  const turn = ++reading;
  const text = source.value;
  const same = readFrom(text) === understood && form.querySelector('[data-need]') !== null;
  const body = new FormData(form);
  try {
    const sent = send(form.dataset.read, { method: 'POST', body, headers: { 'HX-Request': 'true' } });
    const response = await whileBusy(source.parentElement, sent, 'Reading your input…'); // the summary may be out of sight
    if (turn !== reading) return;
    if (!response.ok) {
      unread(`mcpadmin answered with HTTP ${response.status}.`);
      return;
    }
    complaint?.remove();
    const parts = new DOMParser().parseFromString(await response.text(), 'text/html');
    if (turn !== reading) return;
    const kept = corrections();
    const open = new Set([...form.querySelectorAll('[data-kept-open][open]')].map((details) => details.dataset.keptOpen));
    if (same) {
      showNotes(parts);
      if (!parts.querySelector('.understood')) return; // the text cannot be read now, so the fields stay
    } else {
      part('understood').replaceWith(parts.getElementById('understood'));
      understood = readFrom(text);
    }
    const before = part('server-fields');
    const focused = document.activeElement;
    before.replaceWith(parts.getElementById('server-fields'));
    for (const details of form.querySelectorAll('[data-kept-open]')) details.open ||= open.has(details.dataset.keptOpen);
    restore(kept);
    if (same) tellReplaced(keepPlace(before));
    if (form.querySelector('.understood')) form.querySelector('.usual').open = false;
    showForm();
    if (same) keepRows(before);
    focusAgain(focused, before);
    if (form.querySelector('[data-testable]')) testSoon();
  } catch (problem) {
    if (problem instanceof SignedOut) explain(problem);
    else unread('No response from mcpadmin.');
  }
}

function readSoon(delay = READ_MS) {
  clearTimeout(readTimer);
  clearTimeout(testTimer);
  readTimer = setTimeout(read, delay);
}

form.addEventListener('input', (event) => {
  const field = event.target;
  if (field === source) {
    const pasted = event.inputType === 'insertFromPaste';
    byHand = !pasted;
    corrected.clear();
    readSoon(pasted ? 0 : READ_MS);
  } else if (field.id === 'source-index') {
    corrected.clear();
    readSoon(0);
  } else if (field.hasAttribute('data-need')) {
    byHand ||= field.type !== 'password'; // it may be a part of the URL
    readSoon();
  } else if (part('server-fields').contains(field)) {
    if (!/^(values|roots|transport|url|command|arguments)/.test(field.name)) corrected.add(field.name);
    byHand ||= field.name === 'url';
    if (/^(transport|url|values-)/.test(field.name)) testSoon();
  }
});

/* Text that was pasted before this script was loaded. */
if (source.value !== source.defaultValue) readSoon(0);
else if (form.querySelector('[data-testable]')) testSoon();
