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

/* This tab was opened for signing in: the page that waits for it continues. */
if (document.querySelector('[data-signed-in]')) new BroadcastChannel('mcpadmin.sign-in').postMessage('signed-in');
