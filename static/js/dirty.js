/* form[data-dirty]: warns before its unsaved input is lost. */

const clean = new WeakMap();

function snapshot(form) {
  return JSON.stringify([...new FormData(form)].filter(([name]) => name !== 'csrfmiddlewaretoken').map(([name, value]) => [name, value instanceof File ? value.name : value]));
}

function isDirty(form) {
  return form.isConnected && clean.has(form) && clean.get(form) !== snapshot(form);
}

export function startDirty() {
  for (const form of document.querySelectorAll('form[data-dirty]')) {
    clean.set(form, snapshot(form));
    /* A submit that a script takes over (a test, a fragment) saves nothing, so it keeps the warning. */
    form.addEventListener('submit', (event) => setTimeout(() => event.defaultPrevented || clean.delete(form)));
  }
  addEventListener('beforeunload', (event) => {
    if ([...document.querySelectorAll('form[data-dirty]')].some(isDirty)) event.preventDefault();
  });
}
