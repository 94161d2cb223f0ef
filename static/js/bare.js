/* Pages without a signed-in user: no socket, no palette. */
import { startCopy } from './copy.js';
import { startDialogs } from './dialogs.js';
import { startMenus } from './menus.js';
import { startTimes } from './time.js';
import { startToasts } from './toast.js';

startTimes();
startToasts();
startDialogs();
startMenus();
startCopy();

/* A tab that was opened for signing in: the page that waits for it goes on. */
if (document.querySelector('[data-signed-in]')) new BroadcastChannel('mcpadmin.sign-in').postMessage('signed-in');
