/* The tasks of a server: the table follows the server's reports, including those about tasks that outlived their
   call. */
import { live } from './live.js';
import { refreshSoon } from './refresh.js';

const topic = `server.${document.querySelector('[data-server-tasks]').dataset.serverTasks}`;
for (const kind of ['call', 'tasks']) live.on(topic, kind, () => refreshSoon('server-tasks'));
