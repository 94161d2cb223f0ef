/* Starts what every signed-in page needs. Modules of single pages are loaded by their templates. */
import { followed, startBusy } from './busy.js';
import { startCopy } from './copy.js';
import { startDialogs } from './dialogs.js';
import { startDirty } from './dirty.js';
import { startInbox } from './inbox.js';
import { startKeys } from './keys.js';
import { startLateParts } from './late-parts.js';
import { live } from './live.js';
import { startPill } from './live-pill.js';
import { startMenus } from './menus.js';
import { startOffline } from './offline.js';
import { startSignIn } from './sign-in.js';
import { startSignInNotes } from './sign-in-notes.js';
import { startSubscriptionNotes } from './subscription-notes.js';
import { forgetDrafts } from './tab-storage.js';
import { startTimes } from './time.js';
import { startToasts, toast } from './toast.js';
import { startViews } from './views.js';

startTimes();
startToasts();
startDialogs();
startMenus();
startCopy();
startViews();
startBusy();
startLateParts();
startDirty();
startKeys();
startPill(live);
startOffline(live);
startInbox(live);
startSubscriptionNotes(live);
startSignInNotes(live);
startSignIn();
live.addEventListener(
  'restored',
  () =>
    toast({
      tone: 'warn',
      title: 'This page is out of date',
      text: 'The database has fewer entries than this page shows. It was probably restored from a backup.',
      action: { label: 'Reload', url: location.href },
    }),
  { once: true },
);
live.addEventListener(
  'updated',
  () => toast({ tone: 'warn', title: 'mcpadmin was updated', text: 'Reload this page to use the new version.', action: { label: 'Reload', url: location.href } }),
  { once: true },
);
live.addEventListener(
  'denied',
  ({ detail: why }) =>
    toast({
      tone: 'warn',
      title: 'Parts of this page are not updated',
      text: why ?? 'Your permissions changed. Reload the page to see what you can access now.',
      action: { label: 'Reload', url: location.href },
    }),
  { once: true },
);
live.start();

/* On phones the current tab may be outside the visible part of the tab bar. */
const tab = document.querySelector('.tabs a[aria-current]');
if (tab) tab.parentElement.scrollTo({ left: tab.offsetLeft - 48, behavior: 'instant' });

/* The object of a part that polls each second is no longer visible to this user: stop polling. */
function stopAsking(part) {
  const copy = part.cloneNode(true);
  copy.removeAttribute('hx-trigger');
  part.replaceWith(copy);
}

document.body.addEventListener('htmx:response:error', (event) => {
  const { status, raw } = event.detail.ctx.response;
  if (status === 422 || status === 429) return; // a form with its errors, shown where it belongs
  if (status === 401 || raw.headers.get('X-CSRF')) return; // sign-in.js
  const { sourceElement } = event.detail.ctx;
  if (status >= 500 && followed(sourceElement)) return;
  if (followed(sourceElement)) stopAsking(sourceElement);
  /* A response that names an exceeded limit is plain text. */
  const said = raw.headers.get('Content-Type')?.startsWith('text/plain') ? event.detail.ctx.text.trim() : '';
  toast({
    tone: 'bad',
    title: status === 403 ? "You don't have permission" : `mcpadmin answered with HTTP ${status}`,
    text: said || (status >= 500 ? 'Try again. If it happens again, ask an administrator to check the log.' : 'Reload the page and try again.'),
  });
});
document.addEventListener('submit', (event) => event.target.matches('[data-sign-out]') && forgetDrafts());
document.body.addEventListener('htmx:error', (event) => {
  const { ctx } = event.detail;
  if (ctx && !followed(ctx.sourceElement)) toast({ tone: 'bad', title: 'No response from mcpadmin', text: 'Check the connection and try again.' });
});
