/* Forms generated from a JSON Schema: typing into an optional field ticks its "send" box; choosing a key adds it at
   once. */
import { onChoice } from './choice.js';

document.addEventListener('formdata', (event) => {
  for (const field of event.target.querySelectorAll('[data-sf-live]')) event.formData.set(field.name, '1');
});

/* In the capture phase: drafts.js listens to the same event and must find the box ticked. */
document.addEventListener(
  'input',
  (event) => {
    const box = event.target.closest('[data-sf-optional]')?.querySelector('[data-sf-send]');
    if (box && !event.target.matches('[data-sf-send], [data-sf-pick]')) box.checked = true;
  },
  { capture: true },
);

onChoice((select) => select.matches('[data-sf-pick]'), (select) => select.form.requestSubmit(select.nextElementSibling));
