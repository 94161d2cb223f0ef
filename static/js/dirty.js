/* form[data-dirty]: warns before its unsaved input is lost. */

const clean = new WeakMap();
const sent = new WeakMap(); // the last submit of a form

function snapshot(form) {
  return JSON.stringify([...new FormData(form)].filter(([name]) => name !== 'csrfmiddlewaretoken').map(([name, value]) => [name, value instanceof File ? value.name : value]));
}

function isDirty(form) {
  /* A submit that a script took over (a test, a fragment) saved nothing. All its listeners have run by now. */
  const isSaved = sent.get(form)?.defaultPrevented === false;
  return form.isConnected && clean.has(form) && !isSaved && clean.get(form) !== snapshot(form);
}

export function startDirty() {
  for (const form of document.querySelectorAll('form[data-dirty]')) {
    clean.set(form, snapshot(form));
    form.addEventListener('submit', (event) => sent.set(form, event));
  }
  addEventListener('beforeunload', (event) => {
    if ([...document.querySelectorAll('form[data-dirty]')].some(isDirty)) event.preventDefault();
  });
}
