/* Keyboard shortcuts. Keys without Ctrl never fire in inputs and can be switched off (WCAG 2.1.4). */
import { storage } from './dom.js';

/* After g: the page's section. */
const GO = {
  o: 'overview', s: 'servers', n: 'sessions', i: 'inbox', u: 'subscriptions', g: 'agents', b: 'bundles', c: 'credentials',
  e: 'explorer', a: 'explorer', x: 'exports', p: 'users', j: 'jobs', t: 'storage', v: 'privacy', ',': 'settings', m: 'account',
};
/* The first visible one is clicked. */
const PRESS = {
  f: '[name=_switch][aria-pressed=false]',
  y: '[data-copy-json]',
  Y: '[data-copy-curl]',
  l: '[data-follow], [data-console-pause]',
};
const ROWS = '.tbl tbody tr, .tl li, [data-row-nav] > *';
const CHORD_MS = 1_200;
let chord = 0;

/* It opens before its module is loaded, so that no typed character is lost. */
function openPalette() {
  const palette = document.getElementById('palette');
  if (!palette) return false;
  palette.querySelector('input').value = '';
  palette.showModal();
  import(document.body.dataset.paletteModule).then(
    (module) => module.search(),
    () => { // an update removed this page's version of the file, or nothing responds
      palette.querySelector('[data-palette-note]').textContent = 'Search could not be loaded. Reload the page.';
    },
  );
  return true;
}

function isTyping(target) {
  return target.isContentEditable || target.matches?.('input, textarea, select, [role=combobox]');
}

function focusFilter() {
  const visible = (element) => element.checkVisibility();
  const found = [...document.querySelectorAll('[data-shortcut-filter], main [role=search] input, main input[type=search]')];
  const input = found.find(visible);
  input?.focus();
  input?.select?.();
  return Boolean(input);
}

function go(key) {
  const link = document.querySelector(`.side a[data-section="${GO[key]}"]`);
  if (link) location.assign(link.href);
  return Boolean(link);
}

function press(selector) {
  const button = [...document.querySelectorAll(selector)].find((one) => one.checkVisibility());
  button?.click();
  return Boolean(button);
}

function moveRow(step) {
  const rows = [...document.querySelectorAll(ROWS)].filter((row) => row.checkVisibility() && row.querySelector('a, button'));
  if (!rows.length) return false;
  const current = rows.findIndex((row) => row.contains(document.activeElement));
  const part = rows[current]?.closest('[data-list-rows]');
  const edge = part?.querySelector(`[data-list-more=${step > 0 ? 'after' : 'before'}]`);
  if (edge && !part.contains(rows[current + step] ?? null)) {
    edge.click(); // moves the focus once the next rows are there
    return true;
  }
  const next = current < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(current + step, 0), rows.length - 1);
  rows[next].querySelector('a, button').focus();
  rows[next].scrollIntoView({ block: 'nearest' });
  return true;
}

function moveTab(step) {
  const tabs = [...document.querySelectorAll('.tabs a')];
  const current = tabs.findIndex((tab) => tab.hasAttribute('aria-current'));
  if (current < 0) return false;
  location.assign(tabs[(current + step + tabs.length) % tabs.length].href);
  return true;
}

/* The form around the focus, or the page's form if nothing interactive has the focus. */
function formFor(target) {
  const around = target.closest('form');
  return around ?? (target.closest('button, summary, input, select, textarea, [tabindex="0"]') ? null : document.querySelector('form[data-primary]'));
}

function submitPrimary(target) {
  if (target.closest('a[href]')) return false; // the browser opens it in a new tab
  if (document.querySelector('form[inert]')) return true; // a request is pending: the same key press must not submit another form
  const form = formFor(target);
  /* Not the first button of the form: those that add a row or switch the mode come before the one that submits it. */
  const button = form?.querySelector('[data-run]') ?? form?.querySelector('button[data-primary]') ?? form?.querySelector('[type=submit]:not([formnovalidate])');
  if (!form || button?.disabled) return false;
  form.requestSubmit(button ?? undefined);
  return true;
}

function cancelRunning() {
  const form = document.querySelector('form[data-cancel-call]');
  const button = document.querySelector('[data-cancel]:not(:disabled)');
  if (form) form.requestSubmit();
  else button?.click();
  return Boolean(form ?? button);
}

function withControl(event) {
  if (event.key === 'k') return openPalette();
  if (event.key === 'Enter') return event.repeat || submitPrimary(event.target);
  if (event.key === '.') return cancelRunning();
  return false;
}

function single(key) {
  if (Date.now() < chord) {
    chord = 0;
    return key in GO && go(key);
  }
  switch (key) {
    case 'g':
      chord = Date.now() + CHORD_MS;
      return true;
    case '/':
      return focusFilter();
    case '?':
      document.getElementById('shortcuts')?.showModal();
      return true;
    case 'j':
      return moveRow(1);
    case 'k':
      return moveRow(-1);
    case '[':
      return moveTab(-1);
    case ']':
      return moveTab(1);
    default:
      return key in PRESS && press(PRESS[key]);
  }
}

/* One press submits once: a call may end before Enter is released, or before the second click of a double click. */
function isHeldEnter(event) {
  return event.repeat && event.key === 'Enter' && event.target.matches?.('form[method=post] :is(input, button)');
}

function onClick(event) {
  if (event.detail > 1 && event.target.closest('form[method=post] [type=submit]:not([data-form-op])')) event.preventDefault();
}

function onKey(event) {
  if (event.defaultPrevented || event.isComposing || event.altKey) return;
  if (isHeldEnter(event)) return event.preventDefault();
  let done = false;
  if (event.ctrlKey || event.metaKey) done = !document.querySelector('dialog[open]') && withControl(event);
  else if (storage('single-keys') !== 'off' && !isTyping(event.target) && !document.querySelector('dialog[open]')) {
    done = single(event.key);
  }
  if (done) event.preventDefault();
  return undefined;
}

export function startKeys() {
  document.querySelector('[data-palette-open]')?.addEventListener('click', openPalette);
  document.addEventListener('keydown', onKey);
  document.addEventListener('click', onClick);
  const box = document.querySelector('[data-single-keys]');
  if (!box) return;
  box.checked = storage('single-keys') !== 'off';
  box.addEventListener('change', () => storage('single-keys', box.checked ? 'on' : 'off'));
}
