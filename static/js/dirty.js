/* form[data-dirty]: warns before unsaved input is lost. data-dirty="refused": the server shows input again that it
   did not save. */

const clean = new WeakMap();
const sent = new WeakMap(); // the last submit of a form

/* Scripts mark fields of a generated form as live after this module has read it; that is not the user's input. */
function snapshot(form) {
  const unread = new Set(['csrfmiddlewaretoken', ...[...form.querySelectorAll('[data-sf-live]')].map(({ name }) => name)]);
  return JSON.stringify([...new FormData(form)].filter(([name]) => !unread.has(name)).map(([name, value]) => [name, value instanceof File ? value.name : value]));
}

export function isDirty(form) {
  /* A submit that a script handled (a test, a fragment) saved nothing. All its listeners have run by now. */
  if (sent.get(form)?.defaultPrevented === false) return false;
  return form.dataset.dirty === 'refused' || (clean.has(form) && clean.get(form) !== snapshot(form));
}

function keepClean(form) {
  if (form?.matches('[data-dirty]') && !clean.has(form)) clean.set(form, snapshot(form));
}

const forms = () => [...document.querySelectorAll('form[data-dirty]')];

export function startDirty() {
  forms().forEach(keepClean);
  document.addEventListener('focusin', ({ target }) => keepClean(target.closest('form'))); // of a later submit
  document.addEventListener('submit', (event) => sent.set(event.target, event), true);
  /* The page was restored from the browser's cache: what is typed now was not sent. */
  addEventListener('pageshow', ({ persisted }) => {
    if (persisted) for (const form of forms()) sent.delete(form);
  });
  addEventListener('beforeunload', (event) => {
    if (!forms().some(isDirty)) return;
    event.preventDefault();
    for (const form of forms()) sent.delete(form); // the user stayed, so nothing was sent
  });
}
