/* The form of a server: rows of headers, variables and roots, and only the fields of the selected transport. */
export const form = document.getElementById('server-form');

function shownTransport() {
  const chosen = form.elements.transport.value;
  if (chosen) return chosen === 'stdio' ? 'stdio' : 'url';
  const url = form.elements.url.value.trim();
  const command = form.elements.command.value.trim();
  if (url && !command) return 'url';
  return command && !url ? 'stdio' : '';
}

/* Shows only the help of the selected option; its name is already in the control. */
function showUse(choice) {
  const select = choice.querySelector('select');
  for (const line of choice.querySelectorAll('[data-use-of]')) {
    line.hidden = line.dataset.useOf !== select.value;
    line.querySelector('[data-use-name]').hidden = true;
  }
}

/* Both kinds stay visible until something is typed or selected. */
function showFields() {
  const transport = shownTransport();
  for (const part of form.querySelectorAll('[data-for-transport]')) {
    part.hidden = transport !== '' && part.dataset.forTransport !== transport;
  }
  if (transport) for (const row of form.querySelectorAll('[data-value-row]')) followTransport(row, transport);
}

/* An empty row has the kind that the transport uses. */
function followTransport(row, transport) {
  if (row.querySelector('input[name$="-name"]').value) return;
  row.querySelector('select').value = transport === 'stdio' ? 'environment' : 'header';
}

/* Only one policy uses the idle timeout; while hidden, its value is still submitted. */
function showPolicy() {
  for (const part of form.querySelectorAll('[data-for-policy]')) {
    part.hidden = part.dataset.forPolicy !== form.elements.connection_policy.value && !part.querySelector('.is-bad, .err');
  }
}

/* Scheme, host and port, as the page shows the origin that a credential is bound to. */
function typedPlace() {
  if (shownTransport() === 'stdio') return 'local processes';
  try {
    const url = new URL(form.elements.url.value.trim());
    const ports = { 'http:': 80, 'ws:': 80, 'https:': 443, 'wss:': 443 };
    return `${url.protocol}//${url.hostname}:${url.port || ports[url.protocol]}`;
  } catch {
    return '';
  }
}

/* Offers only credentials that may be sent to the typed address; hidden ones are deselected. */
function showCredentials(card) {
  const place = typedPlace();
  let shown = 0;
  for (const row of card.querySelectorAll('[data-place]')) {
    row.hidden = row.dataset.place !== place;
    if (row.hidden) row.querySelector('input').checked = false;
    shown += row.hidden ? 0 : 1;
  }
  card.querySelector('[data-none-fits]').hidden = shown > 0;
}

function total(rows) {
  return form.elements[`${rows.dataset.rows}-TOTAL_FORMS`];
}

function addRow(rows) {
  const count = Number(total(rows).value);
  const template = rows.querySelector('[data-rows-template]');
  const row = template.content.firstElementChild.cloneNode(true);
  for (const part of row.querySelectorAll('[name], [id], [for], [aria-describedby]')) {
    for (const attribute of ['name', 'id', 'for', 'aria-describedby']) {
      const value = part.getAttribute(attribute);
      if (value) part.setAttribute(attribute, value.replace('__prefix__', String(count)));
    }
  }
  total(rows).value = String(count + 1);
  template.before(row);
  dress(row);
  if (row.matches('[data-value-row]') && shownTransport()) followTransport(row, shownTransport());
  return row;
}

const textsOf = (row) => [...row.querySelectorAll('input:not([type=checkbox]), textarea')];
const isBlank = (row) => textsOf(row).every((field) => !field.value);

const valueOf = (row) => row.querySelector('[name$="-value"]');

/* Replaces a field by one of several lines, because browsers remove line breaks. Masked text stays masked. */
function withLines(field) {
  if (field.localName === 'textarea') return field;
  const area = document.createElement('textarea');
  for (const { name, value } of field.attributes) if (name !== 'type' && name !== 'value') area.setAttribute(name, value);
  area.classList.toggle('dots', field.type === 'password');
  area.rows = 4;
  area.defaultValue = field.defaultValue;
  area.value = field.value;
  field.replaceWith(area);
  return area;
}

/* A variable may have several lines, a header has one. */
function pasteLines(event) {
  const row = event.target.closest('[data-value-row]');
  const text = event.clipboardData.getData('text/plain');
  if (row?.querySelector('select').value !== 'environment' || event.target !== valueOf(row)) return;
  if (event.target.localName === 'textarea' || !/[\r\n]/.test(text.trim())) return;
  event.preventDefault();
  const { selectionStart, selectionEnd } = event.target;
  const area = withLines(event.target);
  area.focus();
  area.setRangeText(text, selectionStart, selectionEnd, 'end');
  area.dispatchEvent(new Event('input', { bubbles: true }));
}

/* A row to write in: a blank one, or a new one. */
function blankRow(rows) {
  return [...rows.querySelectorAll('[data-form-row]')].find((row) => !row.hidden && isBlank(row)) ?? addRow(rows);
}

/* The fields by which the server identifies rows. */
function rowKey(row) {
  const kind = row.querySelector('select')?.value;
  const name = textsOf(row)[0].value.trim();
  return JSON.stringify([kind, kind === 'header' ? name.toLowerCase() : name]);
}

/* The same text filled the fields again: the user's changes to the rows of `before` apply to the new ones, too. */
export function keepRows(before) {
  for (const old of before.querySelectorAll('[data-rows]')) {
    const rows = form.querySelector(`[data-rows="${old.dataset.rows}"]`);
    for (const row of old.querySelectorAll('[data-form-row]')) if (!isBlank(row)) keepRow(row, rows);
  }
}

function sameRow(row, rows) {
  return [...rows.querySelectorAll('[data-form-row]')].find((one) => rowKey(one) === rowKey(row));
}

function keepRow(row, rows) {
  const same = sameRow(row, rows);
  if (!same && row.hidden) return;
  const kept = same ?? blankRow(rows);
  kept.hidden = row.hidden;
  for (const field of row.querySelectorAll('input, select, textarea')) {
    const place = kept.querySelector(`[name$="${field.name.match(/-\w+$/)[0]}"]`);
    if (field.type === 'checkbox') {
      if (!same || field.checked !== field.defaultChecked) place.checked = field.checked;
    } else if (!same || field.value !== field.defaultValue) {
      const now = field.localName === 'textarea' ? withLines(place) : place;
      now.value = field.value;
    }
  }
}

const PLACE = ['transport', 'url', 'command', 'arguments'];
const givenIn = (field) => (field.localName === 'select' ? [...field.options].find((one) => one.defaultSelected)?.value : field.defaultValue);

/* Keeps the user's corrections, unless the text now fills the field differently. Returns the fields for which it
   does. */
export function keepPlace(before) {
  const replaced = [];
  for (const name of PLACE) {
    const [old, now] = [before.querySelector(`[name=${name}]`), form.elements[name]];
    if (old.value === (givenIn(old) ?? '')) continue;
    if (givenIn(old) === givenIn(now)) now.value = old.value;
    else if (old.value !== now.value) replaced.push(now);
  }
  return replaced;
}

/* The current control that corresponds to one of `before`. */
export function sameControl(control, before) {
  const row = control.closest('[data-form-row]');
  const kept = row && sameRow(row, form.querySelector(`[data-rows="${row.closest('[data-rows]').dataset.rows}"]`));
  const inRow = kept?.querySelector(control.name ? `[name$="${control.name.match(/-\w+$/)[0]}"]` : '[data-remove-row]');
  const like = (fields) => [...fields.querySelectorAll(control.name ? `[name="${CSS.escape(control.name)}"]` : control.localName)];
  return inRow ?? like(document.getElementById(before.id))[like(before).indexOf(control)];
}

/* A row is removed by ticking its box, so that the server knows; it is only hidden. */
function dress(row) {
  const button = row.querySelector('[data-remove-row]');
  const box = row.querySelector('[data-remove-box]');
  button.hidden = false;
  box.classList.add('vh');
  box.querySelector('input').tabIndex = -1;
  button.addEventListener('click', () => {
    box.querySelector('input').checked = true;
    row.hidden = true;
    row.closest('[data-rows]').querySelector('[data-add-row]').focus();
  });
  if (row.matches('[data-value-row]')) followName(row);
}

/* A name that suggests a secret ticks the box as long as no value was entered. Only the user unticks it. */
function followName(row) {
  const secretNames = new RegExp(row.closest('[data-rows]').dataset.secretNames, 'i');
  const name = row.querySelector('input[name$="-name"]');
  const secret = row.querySelector('input[name$="-secret"]');
  name.addEventListener('change', () => {
    if (!valueOf(row).value) secret.checked ||= secretNames.test(name.value);
  });
}

/* For a test that failed because a credential is missing: a row for the requested header. */
function addHeader(name) {
  const rows = form.querySelector('[data-rows="values"]');
  for (const details of form.querySelectorAll('details')) details.open ||= details.contains(rows);
  const row = blankRow(rows);
  const box = row.querySelector('input[name$="-name"]');
  const value = valueOf(row);
  box.value = name;
  box.dispatchEvent(new Event('change', { bubbles: true }));
  if (name === 'Authorization') value.value = 'Bearer ';
  value.focus();
}

/* What depends on the fields' values: after they were loaded, and after they were filled again. */
export function showForm() {
  for (const row of form.querySelectorAll('[data-form-row]')) dress(row);
  for (const choice of form.querySelectorAll('[data-choice]')) showUse(choice);
  const credentials = form.querySelector('[data-credentials]');
  if (credentials) showCredentials(credentials);
  showFields();
  showPolicy();
}

if (form) {
  form.addEventListener('click', (event) => {
    const button = event.target.closest('[data-add-row]');
    if (!button) return;
    event.preventDefault();
    textsOf(addRow(button.closest('[data-rows]')))[0].focus();
  });
  document.addEventListener('click', (event) => {
    const button = event.target.closest('[data-add-header]');
    if (button) addHeader(button.dataset.addHeader);
  });
  form.addEventListener('paste', pasteLines);
  form.addEventListener('input', (event) => {
    const { name } = event.target;
    const choice = event.target.closest('[data-choice]');
    if (choice) showUse(choice);
    if (name === 'connection_policy') showPolicy();
    if (!['transport', 'url', 'command'].includes(name)) return;
    showFields();
    const credentials = form.querySelector('[data-credentials]');
    if (credentials) showCredentials(credentials);
  });
  showForm();
}
