/* Dialogs, the phone's navigation drawer, shown passwords. */

function openDrawer() {
  const drawer = document.getElementById('drawer');
  const sidebar = document.getElementById('sidebar');
  const home = sidebar.parentElement;
  drawer.append(sidebar);
  drawer.showModal();
  drawer.addEventListener('close', () => home.prepend(sidebar), { once: true });
}

function reveal(button) {
  const input = document.getElementById(button.dataset.reveal);
  const shown = input.type === 'password';
  input.type = shown ? 'text' : 'password';
  button.setAttribute('aria-pressed', String(shown));
}

function onClick(event) {
  const opener = event.target.closest('[data-open-dialog]');
  if (opener) document.getElementById(opener.dataset.openDialog).showModal();
  if (event.target.closest('[data-close-dialog]')) event.target.closest('dialog')?.close();
  if (event.target.closest('[data-drawer]')) openDrawer();
  const revealer = event.target.closest('[data-reveal]');
  if (revealer) reveal(revealer);
  /* Only a click on the backdrop has the dialog itself as target. The press must have begun there too: it may have
     begun as a text selection. */
  if (event.target instanceof HTMLDialogElement && outside(event, event.target) && pressedOutside) event.target.close();
}

let pressedOutside = false;

function onPress(event) {
  pressedOutside = event.target instanceof HTMLDialogElement && outside(event, event.target);
}

function outside(event, dialog) {
  const box = dialog.getBoundingClientRect();
  return event.clientX < box.left || event.clientX > box.right || event.clientY < box.top || event.clientY > box.bottom;
}

/* A modal dialog makes the rest of the page inert, so announcements must be inside it. */
function bringAnnouncements(event) {
  if (!(event.target instanceof HTMLDialogElement)) return;
  const place = [...document.querySelectorAll('dialog[open]')].at(-1) ?? document.body;
  place.append(document.querySelector('[data-announced]'));
}

export function startDialogs() {
  document.addEventListener('toggle', bringAnnouncements, true);
  document.addEventListener('pointerdown', onPress);
  document.addEventListener('click', onClick);
  document.querySelector('[data-focus-first]')?.focus();
  matchMedia('(min-width: 1101px)').addEventListener('change', () => document.getElementById('drawer')?.close());
}
