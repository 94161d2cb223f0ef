/* What the Protocol and the Network tab share: a row unfolds, and then loads what it says; the address keeps which. */
import { whileBusy } from './busy.js';
import { reasonOf } from './dom.js';
import { send } from './sign-in.js';

const TONES = ['ok', 'warn', 'bad', 'run'];

export function setWord(item, word, tone) {
  const place = item.querySelector('[data-part="word"]');
  place.textContent = word;
  place.classList.remove(...TONES);
  if (TONES.includes(tone)) place.classList.add(tone);
}

async function load(details, page) {
  const place = details.querySelector('[data-part="details"]');
  if (place.dataset.loaded) return;
  place.dataset.loaded = 'loading';
  place.textContent = 'Loading…';
  try {
    const response = await whileBusy(place, send(`${page.dataset.wireBase}${details.closest('li').dataset.seq}/`, { headers: { 'HX-Request': 'true' } }));
    if (response.status === 404) throw new Error('This message is no longer stored.');
    if (!response.ok) throw new Error(`The message could not be loaded (${response.status}). Close and open it to try again.`);
    await htmx.swap({ target: place, swap: 'innerHTML', text: await response.text() });
    place.dataset.loaded = 'yes';
    details.scrollIntoView({ block: 'nearest' });
  } catch (problem) {
    place.textContent = reasonOf(problem);
    delete place.dataset.loaded;
  }
}

/* The answer came after the row was opened: what it says is loaded again. */
export function outdated(item, page) {
  const details = item.querySelector('details');
  delete details.querySelector('[data-part="details"]').dataset.loaded;
  if (details.open) load(details, page);
}

export function unfolding(page) {
  const inAddress = page.querySelector('[data-wire-open]');
  page.addEventListener('toggle', (event) => {
    const details = event.target;
    if (!details.matches('[data-wire-message]')) return;
    const { seq } = details.closest('li').dataset;
    if (details.open) load(details, page);
    if (inAddress && (details.open || inAddress.value === seq)) note(details.open ? seq : '');
  }, true);

  function note(seq) {
    inAddress.value = seq;
    const url = new URL(location.href);
    if (seq) url.searchParams.set('open', seq);
    else url.searchParams.delete('open');
    history.replaceState(null, '', url);
  }

  const details = inAddress?.value ? page.querySelector(`li[data-seq="${CSS.escape(inAddress.value)}"] > details`) : null;
  if (!details) return;
  details.closest('li li')?.parentElement.closest('li').querySelector('details').toggleAttribute('open', true);
  details.open = true;
  requestAnimationFrame(() => details.scrollIntoView({ block: 'nearest' }));
}
