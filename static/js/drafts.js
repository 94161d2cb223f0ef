/* Input in the form of a tool, prompt or resource template is kept as long as the tab: across other tools, pages,
   back and reload. Secrets are not kept: fields that the server marked as secret, and the text of arguments whose
   schema has a secret. */
import { DRAFTS, kept } from './tab-storage.js';

const MOST = 50;
const MOST_CHARS = 200_000;
const NEVER = ['csrfmiddlewaretoken', '_confirm', '_unchecked', '_validate', '_restored'];

/* The user, the form, and the address that prefilled it. */
function keyOf(form) {
  const given = new URLSearchParams([...new URLSearchParams(location.search)].filter(([name]) => ['args', 'call', 'saved', 'use', 'part', 'at', 'into'].includes(name) || name.startsWith('arg.')));
  return `${DRAFTS}${document.body.dataset.user}:${form.dataset.draft}:${given}`;
}

/* A field's name ends with the path of its value: "arg:/login/password". */
function entriesOf(form) {
  const marked = new Set([...form.querySelectorAll('[data-secret], input[type=password]')].map((field) => field.name));
  const paths = JSON.parse(form.dataset.secretPaths || '[]');
  const below = (name) => paths.some((path) => `${name.slice(name.indexOf(':') + 1)}/`.startsWith(`${path}/`));
  return [...new FormData(form)].filter(([name, value]) => typeof value === 'string' && !NEVER.includes(name) && !marked.has(name) && !below(name));
}

/* Scripts mark a form as live after this module has read it; that is not the user's input. */
function typed(form, entries) {
  const live = new Set([...form.querySelectorAll('[data-sf-live]')].map((field) => field.name));
  return JSON.stringify(entries.filter(([name]) => !live.has(name)));
}

function drop(key) {
  try {
    sessionStorage.removeItem(key);
  } catch {
    /* Nothing was stored either. */
  }
}

function makeRoom() {
  try {
    const keys = Object.keys(sessionStorage).filter((key) => key.startsWith(DRAFTS));
    const oldest = keys.map((key) => [JSON.parse(sessionStorage.getItem(key)).at, key]).sort(([a], [b]) => a - b);
    for (const [, key] of oldest.slice(0, Math.max(0, keys.length - MOST))) sessionStorage.removeItem(key);
  } catch {
    /* Storage is blocked: nothing is kept. */
  }
}

/* `find()` returns the current form. `restore(entries)` fills it with a draft, and `clear()` empties it again. */
export function keepDrafts(find, { restore, clear }) {
  const form = find();
  if (!form?.dataset.draft) return { save() {} };
  const key = keyOf(form);
  const untouched = typed(form, entriesOf(form));

  function save() {
    const entries = entriesOf(find());
    const text = JSON.stringify({ at: Date.now(), entries });
    if (typed(find(), entries) === untouched || text.length > MOST_CHARS) return drop(key);
    kept(key, text);
    makeRoom();
  }

  document.addEventListener('input', (event) => find()?.contains(event.target) && save());
  document.addEventListener('change', (event) => find()?.contains(event.target) && save());
  document.addEventListener('click', (event) => {
    if (!event.target.closest('[data-clear-draft]')) return;
    event.preventDefault();
    drop(key);
    clear();
  });
  const draft = JSON.parse(kept(key) ?? 'null');
  if (draft) restore(draft.entries);
  return { save };
}

/* The form of a prompt or template: fields by name, and the notice that they were restored. */
export function fillArguments(form, entries) {
  const values = new Map(entries);
  for (const field of form.querySelectorAll('[data-argument] textarea')) field.value = values.get(field.name) ?? '';
  form.querySelector('[data-restored]').hidden = !entries.length;
}
