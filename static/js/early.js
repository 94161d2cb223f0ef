/* A form that is sent before the modules have loaded would leave the page: the press waits until they can take it. */
(() => {
  let pressed = null;

  function wait(event) {
    if (event.target.getAttribute('method') !== 'post') return;
    event.preventDefault();
    event.stopImmediatePropagation();
    pressed = [event.target, event.submitter];
    const state = event.target.querySelector('[data-run-state]');
    if (state) state.textContent = 'Connecting…';
  }

  addEventListener('submit', wait, true);
  addEventListener('DOMContentLoaded', () => {
    removeEventListener('submit', wait, true);
    if (pressed?.[0].isConnected) pressed[0].requestSubmit(pressed[1]);
  });
})();
