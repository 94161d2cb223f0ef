/* Drop-down menus and tabs with Bootstrap's attributes (data-bs-toggle="dropdown" | "tab"), without Bootstrap's
   bundle: its 21 kB would take a first load over its budget. */

const TOGGLE = '[data-bs-toggle=dropdown]';

function menuOf(toggle) {
  return toggle.parentElement.querySelector('.dropdown-menu');
}

function itemsOf(menu) {
  return [...menu.querySelectorAll('.dropdown-item:not(:disabled, .disabled)')].filter((item) => item.checkVisibility());
}

function show(toggle, open) {
  const menu = menuOf(toggle);
  menu.dataset.bsPopper = 'static'; // Tabler's rules position a menu with this attribute
  menu.classList.toggle('show', open);
  toggle.setAttribute('aria-expanded', String(open));
  if (open && menu.getBoundingClientRect().left < 0) menu.classList.remove('dropdown-menu-end');
}

function openToggle() {
  return document.querySelector(`${TOGGLE}[aria-expanded=true]`);
}

function closeOthers(kept) {
  for (const toggle of document.querySelectorAll(`${TOGGLE}[aria-expanded=true]`)) if (toggle !== kept) show(toggle, false);
}

function onClick(event) {
  const toggle = event.target.closest(TOGGLE);
  closeOthers(toggle);
  if (toggle) show(toggle, toggle.getAttribute('aria-expanded') !== 'true');
  const tab = event.target.closest('[data-bs-toggle=tab]');
  if (tab) select(tab);
}

function step(list, current, key) {
  const at = list.indexOf(current);
  if (key === 'Home') return list[0];
  if (key === 'End') return list.at(-1);
  const forward = key === 'ArrowDown' || key === 'ArrowRight';
  if (at < 0) return forward ? list[0] : list.at(-1);
  return list[(at + (forward ? 1 : -1) + list.length) % list.length];
}

function onMenuKey(event) {
  const toggle = event.target.closest(TOGGLE) ?? openToggle();
  if (!toggle) return;
  if (event.key === 'Escape' && toggle.getAttribute('aria-expanded') === 'true') {
    show(toggle, false);
    toggle.focus();
    event.preventDefault();
  } else if (['ArrowDown', 'ArrowUp', 'Home', 'End'].includes(event.key) && toggle.parentElement.contains(event.target)) {
    if (toggle.getAttribute('aria-expanded') !== 'true' && event.key.startsWith('Arrow')) show(toggle, true);
    step(itemsOf(menuOf(toggle)), document.activeElement, event.key)?.focus();
    event.preventDefault();
  }
}

function onTabKey(event) {
  const tab = event.target.closest('[data-bs-toggle=tab]');
  if (!tab || !['ArrowLeft', 'ArrowRight', 'Home', 'End'].includes(event.key)) return;
  const next = step([...tab.closest('[role=tablist]').querySelectorAll('[data-bs-toggle=tab]')], tab, event.key);
  select(next);
  next.focus();
  event.preventDefault();
}

function select(tab) {
  for (const other of tab.closest('[role=tablist]').querySelectorAll('[data-bs-toggle=tab]')) {
    const chosen = other === tab;
    other.classList.toggle('active', chosen);
    other.setAttribute('aria-selected', String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    document.querySelector(other.dataset.bsTarget.replace(/^#(.*)$/, (_, id) => `#${CSS.escape(id)}`))?.classList.toggle('active', chosen);
  }
}

/* A `<details data-pop>` is a panel above the page: it opens without scripts, and closes like a menu. */
function leavePanels(event) {
  for (const panel of document.querySelectorAll('details[data-pop][open]')) {
    if (event.type === 'keydown' ? event.key !== 'Escape' : panel.contains(event.target)) continue;
    if (panel.contains(document.activeElement)) panel.querySelector('summary').focus();
    panel.open = false;
  }
}

export function startMenus() {
  document.addEventListener('click', leavePanels);
  document.addEventListener('keydown', leavePanels);
  document.addEventListener('click', onClick);
  document.addEventListener('keydown', onMenuKey);
  document.addEventListener('keydown', onTabKey);
  document.addEventListener('focusin', (event) => {
    const toggle = openToggle();
    if (toggle && !toggle.parentElement.contains(event.target)) show(toggle, false);
  });
}
