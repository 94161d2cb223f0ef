/* Loaded in <head> without defer, so that the first paint has the right colours. The account's choice applies in
   every browser; this browser keeps a copy for pages without a sign-in. */
(() => {
  const root = document.documentElement;
  const system = matchMedia('(prefers-color-scheme: dark)');

  function kept(key, value) {
    try {
      if (value !== undefined) localStorage.setItem(key, value);
      return localStorage.getItem(key);
    } catch {
      return null; // storage may be forbidden
    }
  }

  function paint() {
    const choice = root.dataset.theme ?? kept('theme') ?? 'system';
    const dark = choice === 'dark' || (choice !== 'light' && system.matches);
    root.dataset.bsTheme = dark ? 'dark' : 'light';
    for (const button of document.querySelectorAll('[data-theme-choice]')) {
      button.setAttribute('aria-pressed', String(button.dataset.themeChoice === choice));
    }
    for (const button of document.querySelectorAll('[data-zone-switch]')) {
      button.setAttribute('aria-pressed', String(root.dataset.utc === 'true'));
    }
  }

  function keep(name, value) {
    const { preferences, csrf } = document.body.dataset;
    if (!preferences) return;
    fetch(preferences, {
      method: 'POST',
      body: new URLSearchParams({ [name]: value }),
      headers: { 'X-CSRFToken': csrf, 'X-Requested-With': 'XMLHttpRequest' },
      keepalive: true,
    }).catch(() => {});
  }

  if (root.dataset.theme) kept('theme', root.dataset.theme);
  root.dataset.utc ??= String(kept('zone') === 'utc');
  paint();
  /* The view of servers' texts and values (views.js), also before the first paint. */
  for (const view of ['text', 'json']) {
    const choice = kept(`view-${view}`);
    if (choice) root.dataset[`view${view}`] = choice;
  }
  system.addEventListener('change', paint);
  addEventListener('storage', ({ key, newValue }) => {
    if (key === 'theme') root.dataset.theme = newValue;
    if (key === 'zone') root.dataset.utc = String(newValue === 'utc');
    paint();
  });
  document.addEventListener('DOMContentLoaded', paint);
  /* Runs before the handlers of the modules, which render times again. */
  addEventListener('click', (event) => {
    const button = event.target.closest?.('[data-theme-choice], [data-zone-choice], [data-zone-switch]');
    if (!button) return;
    if (button.dataset.themeChoice) {
      root.dataset.theme = button.dataset.themeChoice;
      kept('theme', root.dataset.theme);
      keep('theme', root.dataset.theme);
    } else {
      const utc = button.dataset.zoneChoice ? button.dataset.zoneChoice === 'utc' : root.dataset.utc !== 'true';
      root.dataset.utc = String(utc);
      kept('zone', utc ? 'utc' : 'local');
      keep('utc', utc ? 'on' : '');
    }
    paint();
  }, true);
})();

/* A form submitted before the modules have loaded would leave the page: it is held until they can handle it. */
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

/* Ctrl+K before the modules have loaded would trigger the browser's own action: it is held as well. */
(() => {
  let isPressed = false;

  function wait(event) {
    if (event.key !== 'k' || !(event.ctrlKey || event.metaKey) || event.altKey || !document.body?.dataset.paletteModule) return;
    event.preventDefault();
    isPressed = true;
  }

  addEventListener('keydown', wait, true);
  addEventListener('DOMContentLoaded', () => {
    removeEventListener('keydown', wait, true);
    if (isPressed) document.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', ctrlKey: true, bubbles: true }));
  });
})();
