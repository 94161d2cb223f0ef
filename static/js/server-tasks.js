/* The tasks of a server: the table follows what its calls do. A task that outlived its call has no call that says so, so the
   table is also read again while one runs. */
import { live } from './live.js';
import { refreshSoon } from './refresh.js';

const AGAIN_MS = 3000;
const page = document.querySelector('[data-server-tasks]');

live.on(`server.${page.dataset.serverTasks}`, 'call', () => refreshSoon('server-tasks'));
setInterval(() => {
  if (!document.hidden && page.querySelector('[data-open]')) refreshSoon('server-tasks');
}, AGAIN_MS);
