/* Suggestions of the server while a person types: one request at a time, after a pause; can be chosen by keyboard.
   Each request is a recorded call, so the same one is not made twice on a page. */
import { whileBusy } from './busy.js';
import { whenOver } from './call-cards.js';
import { announce } from './dom.js';
import { live } from './live.js';

const PAUSE_MS = 250;
const KNOWN = 200;
const known = new Map(); // request as text -> values
let lists = 0;

function argumentsOf(form) {
  const found = {};
  for (const field of form.querySelectorAll('[data-complete]')) if (field.value) found[field.dataset.complete] = field.value;
  return found;
}

async function answerOf(question) {
  const answer = await live.request({ op: 'call', method: 'completion/complete', html: false, ...question });
  if (answer.op !== 'accepted') throw new Error(answer.message);
  await new Promise((resolve) => whenOver(answer.call, resolve));
  live.scan(document.body); // its topic is no longer needed
  const response = await fetch(`/calls/${answer.call}/values.json`, { headers: { Accept: 'application/json' } });
  if (!response.ok) throw new Error(`the response could not be read (${response.status})`);
  return (await response.json()).values;
}

async function valuesFor(question) {
  const key = JSON.stringify(question);
  if (!known.has(key)) {
    if (known.size >= KNOWN) known.clear();
    known.set(key, await answerOf(question));
  }
  return known.get(key);
}

class Suggestions {
  #field;
  #list;
  #timer = 0;
  #busy = false;
  #again = false;
  #values = [];
  #at = -1;

  constructor(field) {
    this.#field = field;
    lists += 1;
    this.#list = document.createElement('ul');
    Object.assign(this.#list, { id: `suggestions-${lists}`, className: 'sugg', hidden: true });
    this.#list.setAttribute('role', 'listbox');
    this.#list.setAttribute('aria-label', `Suggestions for ${field.dataset.complete}`);
    field.after(this.#list);
    field.setAttribute('aria-controls', this.#list.id);
    field.addEventListener('input', () => {
      this.#select(-1); // Enter must not replace what was typed since
      this.#soon();
    });
    field.addEventListener('keydown', (event) => this.#key(event));
    field.addEventListener('blur', () => this.#close());
    this.#list.addEventListener('mousedown', (event) => this.#click(event));
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), PAUSE_MS);
  }

  async #ask() {
    if (this.#busy) return void (this.#again = true);
    if (live.state !== 'live') return;
    this.#busy = true;
    const asked = this.#field.value;
    try {
      const values = await whileBusy(this.#field.parentElement, valuesFor(this.#question()), 'Loading suggestions…');
      if (document.activeElement === this.#field && this.#field.value === asked) this.#show(values);
    } catch {
      this.#close(); // a form without suggestions is still a form
    } finally {
      this.#busy = false;
      if (this.#again) {
        this.#again = false;
        this.#soon();
      }
    }
  }

  #question() {
    const { form, dataset, value } = this.#field;
    const { [dataset.complete]: _, ...others } = argumentsOf(form);
    const args = { argument: { name: dataset.complete, value } };
    if (Object.keys(others).length) args.context = { arguments: others };
    return { server: form.dataset.server, target: form.dataset.suggests, args };
  }

  #show(values) {
    this.#values = values.filter(({ value }) => value !== this.#field.value);
    this.#list.replaceChildren(...this.#values.map(({ shown }, index) => this.#option(shown, index)));
    this.#select(-1);
    this.#list.hidden = !this.#values.length;
    if (this.#values.length) announce(this.#values.length === 1 ? 'One suggestion' : `${this.#values.length} suggestions`);
  }

  #option(shown, index) {
    const option = document.createElement('li');
    Object.assign(option, { id: `${this.#list.id}-${index}`, textContent: shown });
    option.setAttribute('role', 'option');
    option.setAttribute('aria-selected', 'false');
    return option;
  }

  get #open() {
    return !this.#list.hidden;
  }

  #close() {
    this.#list.hidden = true;
    this.#select(-1);
  }

  #key(event) {
    if (event.key === 'ArrowDown' && !this.#open && !this.#field.value.includes('\n')) {
      event.preventDefault();
      this.#ask();
    } else if (!this.#open) return;
    else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      this.#move(event.key === 'ArrowDown' ? 1 : -1);
    } else if (event.key === 'Enter' && this.#at >= 0 && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      event.stopPropagation();
      this.#take(this.#at);
    } else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      this.#close();
    }
  }

  #move(step) {
    const count = this.#list.children.length;
    this.#select((this.#at + step + count + (this.#at < 0 && step < 0 ? 1 : 0)) % count);
  }

  #select(at) {
    this.#at = at;
    [...this.#list.children].forEach((option, place) => option.setAttribute('aria-selected', String(place === at)));
    if (at < 0) return this.#field.removeAttribute('aria-activedescendant');
    this.#list.children[at].scrollIntoView({ block: 'nearest' });
    this.#field.setAttribute('aria-activedescendant', this.#list.children[at].id);
  }

  #click(event) {
    event.preventDefault(); // the field keeps the focus
    const option = event.target.closest('[role=option]');
    if (option) this.#take([...this.#list.children].indexOf(option));
  }

  #take(index) {
    this.#field.value = this.#values[index].value;
    this.#close();
    this.#field.dispatchEvent(new Event('change', { bubbles: true }));
  }
}

/* Starts suggestions for the fields of a form that says what it is completed for. */
export function startCompletion(form) {
  if (!form?.dataset.suggests) return;
  for (const field of form.querySelectorAll('[data-complete]')) new Suggestions(field);
}

/* Enter runs a form of short texts; Shift+Enter inserts a new line where a value needs one. */
export function startEnter(form) {
  form?.addEventListener('keydown', (event) => {
    const plain = event.key === 'Enter' && !event.shiftKey && !event.ctrlKey && !event.metaKey && !event.isComposing;
    const button = form.querySelector('[data-run]');
    if (!plain || event.defaultPrevented || !button || !event.target.matches('textarea.grows:not([data-many])')) return;
    event.preventDefault();
    if (!event.repeat) form.requestSubmit(button);
  });
}

/* Shows one message for each refused argument, at its field; the first one gets the focus. */
export function showErrors(form, errors) {
  let first = null;
  for (const box of form.querySelectorAll('[data-argument]')) {
    const words = errors[box.dataset.argument];
    const place = box.querySelector('[data-error]');
    const field = box.querySelector('textarea');
    place.hidden = !words;
    place.querySelector('span').textContent = words ?? '';
    field.classList.toggle('is-bad', Boolean(words));
    if (words) field.setAttribute('aria-invalid', 'true');
    else field.removeAttribute('aria-invalid');
    if (words) first ??= field;
  }
  first?.focus();
  return first !== null;
}
