/* The page of one call: what stands beside the card follows each change of the call. */
import { live } from './live.js';

const facts = document.getElementById('call-facts');

async function refresh() {
  const response = await fetch(location.href, { headers: { Accept: 'text/html' } });
  if (!response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  htmx.swap({ target: facts, swap: 'innerMorph', text: page.getElementById('call-facts').innerHTML });
}

if (facts) live.on(`call.${facts.dataset.call}`, 'call', () => refresh().catch(() => {})); // the next change or a reload shows it
