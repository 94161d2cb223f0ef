/* The page of one call: the details beside the card follow each change of the call. */
import { live } from './live.js';
import { refreshSoon } from './refresh.js';

const facts = document.getElementById('call-facts');

if (facts) live.on(`call.${facts.dataset.call}`, 'call', () => refreshSoon('call-facts'));
