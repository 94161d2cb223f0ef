/* Suggestions for the query while it is typed: fields first, then their values. They can be chosen by keyboard. */
import { whileBusy } from './busy.js';
import { announce } from './dom.js';

const PAUSE_MS = 120;
const GIVE_UP_MS = 5_000;

/* The server counts characters; JavaScript counts UTF-16 code units. */
const characters = (text) => [...text].length;
const upTo = (text, count) => [...text].slice(0, count).join('').length;

class QueryCompletion {
  #field;
  #address;
  #list;
  #timer = 0;
  #asked = 0;
  #found = [];
  #at = -1;

  constructor(field, address) {
    [this.#field, this.#address] = [field, address];
    this.#list = document.createElement('ul');
    Object.assign(this.#list, { id: 'query-suggestions', className: 'sugg', hidden: true });
    this.#list.setAttribute('role', 'listbox');
    this.#list.setAttribute('aria-label', 'Suggestions');
    field.parentElement.append(this.#list);
    field.setAttribute('aria-controls', this.#list.id);
    field.addEventListener('input', () => {
      this.#fill(this.#found.filter((one) => this.#fits(one)));
      this.#soon();
    });
    field.addEventListener('focus', () => this.#field.value || this.#soon());
    field.addEventListener('keydown', (event) => this.#key(event));
    field.addEventListener('blur', () => this.close());
    this.#list.addEventListener('mousedown', (event) => {
      event.preventDefault();
      const option = event.target.closest('li');
      if (option) this.#take([...this.#list.children].indexOf(option));
    });
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), PAUSE_MS);
  }

  async #ask() {
    this.#asked += 1;
    const mine = this.#asked;
    const { value, selectionStart } = this.#field;
    try {
      const asked = fetch(`${this.#address}?${new URLSearchParams({ q: value, at: characters(value.slice(0, selectionStart)) })}`, {
        headers: { Accept: 'application/json' },
        signal: AbortSignal.timeout(GIVE_UP_MS),
      });
      const response = await whileBusy(this.#field.parentElement, asked, 'Loading suggestions…');
      if (!response.ok || response.redirected) throw new Error(`mcpadmin answered with HTTP ${response.status}`);
      const { completions } = await response.json();
      if (mine !== this.#asked || document.activeElement !== this.#field) return;
      this.#show(
        completions.map((one) => {
          const start = upTo(value, one.start);
          return { ...one, start, before: value.slice(0, start), word: value.slice(start, selectionStart) };
        }),
      );
    } catch {
      this.close(); // a query without suggestions is still a query
    }
  }

  #show(completions) {
    const word = (one) => this.#field.value.slice(one.start, this.#field.selectionStart);
    this.#fill(completions.filter((one) => this.#fits(one) && one.insert !== word(one)));
    if (this.#found.length) announce(this.#found.length === 1 ? 'One suggestion' : `${this.#found.length} suggestions`);
  }

  #fill(completions) {
    this.#found = completions;
    this.#list.replaceChildren(...completions.map((one, place) => this.#option(one, place)));
    this.#point(-1);
    this.#open(completions.length > 0);
  }

  /* Whether a suggestion still completes the text before the cursor, which may have changed since it was loaded. */
  #fits({ insert, start, before, word }) {
    const { value, selectionStart } = this.#field;
    const now = value.slice(start, selectionStart);
    const same = now === word || insert.toLowerCase().startsWith(now.toLowerCase());
    return value.startsWith(before) && selectionStart >= start && same;
  }

  #option(one, place) {
    const option = document.createElement('li');
    option.id = `${this.#list.id}-${place}`;
    option.setAttribute('role', 'option');
    option.setAttribute('aria-selected', 'false');
    const insert = document.createElement('b');
    insert.textContent = one.shown;
    const words = document.createElement('span');
    words.textContent = [one.label, one.detail].filter((text) => text && text !== one.shown).join(' · ');
    option.append(insert, words);
    return option;
  }

  #open(open) {
    this.#list.hidden = !open;
    this.#field.setAttribute('aria-expanded', String(open));
  }

  close() {
    clearTimeout(this.#timer);
    this.#asked += 1;
    this.#point(-1);
    this.#open(false);
  }

  #point(at) {
    this.#at = at;
    [...this.#list.children].forEach((option, place) => option.setAttribute('aria-selected', String(place === at)));
    if (at < 0) this.#field.removeAttribute('aria-activedescendant');
    else {
      this.#field.setAttribute('aria-activedescendant', this.#list.children[at].id);
      this.#list.children[at].scrollIntoView({ block: 'nearest' });
    }
  }

  #key(event) {
    const open = !this.#list.hidden;
    if (event.key === 'ArrowDown' && !open) this.#ask();
    else if (!open) return;
    else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      const count = this.#found.length;
      const next = this.#at < 0 && event.key === 'ArrowUp' ? count - 1 : this.#at + (event.key === 'ArrowDown' ? 1 : -1);
      this.#point((next + count) % count);
    } else if (event.key === 'Escape') this.close();
    else if ((event.key === 'Enter' && this.#at >= 0) || (event.key === 'Tab' && !event.shiftKey && this.#at >= 0)) this.#take(this.#at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /* A completed field is followed by suggestions for its values; a completed value by a space. */
  #take(at) {
    if (!this.#fits(this.#found[at])) return this.#soon(); // the cursor was moved
    const { insert, start } = this.#found[at];
    const { value, selectionStart } = this.#field;
    const rest = value.slice(selectionStart);
    const blank = insert.endsWith(':') || rest.startsWith(' ') ? '' : ' ';
    this.#field.value = value.slice(0, start) + insert + blank + rest;
    const end = start + insert.length + blank.length;
    this.#field.setSelectionRange(end, end);
    this.close();
    if (insert.endsWith(':')) this.#ask();
  }
}

export function startCompletion(field, address) {
  return new QueryCompletion(field, address);
}
