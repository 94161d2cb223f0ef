/* A request of a server may end while a person still types the answer: its form goes, the text stays to be copied. */
import { isDirty } from './dirty.js';
import { fromTemplate, slot } from './dom.js';

const TEXTS = 'textarea, input:not([type=checkbox], [type=radio], [type=hidden], [type=password])';
const labelOf = (field) => field.labels[0]?.textContent.replace(/\s+/g, ' ').trim() || field.name;

/* null where there is no form, or nothing was typed. It may have left the page already. */
export function unsentOf(form) {
  if (!form || !isDirty(form)) return null;
  const fields = [...form.querySelectorAll(TEXTS)].filter((field) => field.value.trim());
  if (!fields.length) return null;
  const text = fields.length === 1 ? fields[0].value : fields.map((field) => `${labelOf(field)}: ${field.value}`).join('\n');
  const kept = fromTemplate('unsent');
  slot(kept, 'text').textContent = text;
  slot(kept, 'copy').dataset.copy = text;
  return kept;
}
