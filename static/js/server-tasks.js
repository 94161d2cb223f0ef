/* The tasks of a server: the table follows what the server says of them, also of one that outlived its call. */
import { live } from './live.js';
import { refreshSoon } from './refresh.js';

const topic = `server.${document.querySelector('[data-server-tasks]').dataset.serverTasks}`;
for (const kind of ['call', 'tasks']) live.on(topic, kind, () => refreshSoon('server-tasks'));
