/* Lists fed by a topic: rows are cloned from a server-rendered template, newest first, at most 500 in the page. */
import { announce, fromTemplate, slot } from './dom.js';

const IN_PAGE = 500;
const HELD = 5_000;

function valueAt(row, path) {
  return path.split('.').reduce((value, key) => value?.[key], row);
}

function fill(element, row) {
  const { field, classField, hrefField, titleField, ifField, ifValue } = element.dataset;
  if (ifField !== undefined && String(valueAt(row, ifField) ?? '') !== (ifValue ?? '')) {
    element.remove();
    return;
  }
  if (field !== undefined) write(element, valueAt(row, field));
  if (classField !== undefined && valueAt(row, classField)) element.classList.add(...String(valueAt(row, classField)).split(' '));
  if (titleField !== undefined) element.title = valueAt(row, titleField) ?? '';
  if (hrefField !== undefined) setHref(element, valueAt(row, hrefField));
}

function write(element, value) {
  if (element instanceof HTMLTimeElement) {
    if (value) element.dateTime = value; // time.js writes the words
    element.textContent = value ?? '';
  } else element.textContent = value ?? '';
}

/* Own pages only: a row is never the way to a foreign address. */
function setHref(element, value) {
  if (typeof value === 'string' && value.startsWith('/') && !value.startsWith('//')) element.setAttribute('href', value);
}

class LiveList {
  #list;
  #template;
  #queue = []; // oldest first
  #lost = 0;
  #frame = 0;
  #notice = null;

  constructor(list) {
    this.#list = list;
    this.#template = list.querySelector(':scope > template[data-row]') ?? list.parentElement.querySelector('template[data-row]')
      ?? list.closest('section, article, .card')?.querySelector('template[data-row]');
    addEventListener('scroll', () => this.#later(), { passive: true, capture: true });
  }

  add(rows) {
    this.#queue.push(...rows);
    if (this.#queue.length > HELD) this.#lost += this.#queue.splice(0, this.#queue.length - HELD).length;
    this.#later();
  }

  #later() {
    if (!this.#queue.length || this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.#isScrolled()) this.#showNotice();
      else this.#flush();
    });
  }

  #scroller() {
    const box = this.#list.closest('[data-live-scroller], .scroll, .pane');
    return box && box.scrollHeight > box.clientHeight + 1 ? box : null;
  }

  #isScrolled() {
    const box = this.#scroller();
    return box ? box.scrollTop > 4 : this.#list.getBoundingClientRect().top < 0;
  }

  #flush() {
    const rows = this.#queue.splice(0).slice(-IN_PAGE);
    const fragment = document.createDocumentFragment();
    for (const row of rows.reverse()) fragment.append(this.#clone(row));
    this.#list.prepend(fragment);
    const items = [...this.#list.children].filter((item) => !(item instanceof HTMLTemplateElement));
    for (const item of items.slice(IN_PAGE)) item.remove();
    this.#notice?.remove();
    this.#notice = null;
    this.#lost = 0;
    this.#list.closest('[data-live-empty]')?.removeAttribute('data-live-empty');
    announce(rows.length === 1 ? 'One new row' : `${rows.length} new rows`);
  }

  #clone(row) {
    const element = this.#template.content.firstElementChild.cloneNode(true);
    element.classList.add('new');
    fill(element, row);
    const marked = '[data-field], [data-class-field], [data-href-field], [data-title-field], [data-if-field]';
    for (const part of element.querySelectorAll(marked)) fill(part, row);
    return element;
  }

  #showNotice() {
    if (!this.#notice) {
      this.#notice = fromTemplate('newer');
      this.#notice.querySelector('button').addEventListener('click', () => this.#jump());
      (this.#list.closest('.scroll, [role=log], table') ?? this.#list).before(this.#notice);
    }
    const count = this.#queue.length + this.#lost;
    slot(this.#notice, 'count').textContent = count === 1 ? '1 newer row' : `${count} newer rows`;
  }

  #jump() {
    const box = this.#scroller();
    if (box) box.scrollTo({ top: 0 });
    else this.#list.closest('article, section, .card, table').scrollIntoView();
    this.#flush();
  }
}

export function startLists(live) {
  for (const list of document.querySelectorAll('[data-live-list]')) {
    const keeper = new LiveList(list);
    live.on(list.dataset.liveList, '*', (frame) => frame.rows?.length && keeper.add(frame.rows));
  }
}
