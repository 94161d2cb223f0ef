/* Loaded in <head> without defer, so that the first paint has the chosen colours. */
(() => {
  const root = document.documentElement;
  const system = matchMedia('(prefers-color-scheme: dark)');

  function stored() {
    try {
      return localStorage.getItem('theme') ?? 'system';
    } catch {
      return 'system'; // storage may be forbidden; the system's choice then rules
    }
  }

  function paint() {
    const choice = stored();
    const dark = choice === 'dark' || (choice !== 'light' && system.matches);
    root.dataset.bsTheme = dark ? 'dark' : 'light';
    for (const button of document.querySelectorAll('[data-theme-choice]')) {
      button.setAttribute('aria-pressed', String(button.dataset.themeChoice === choice));
    }
  }

  paint();
  /* How texts and values of servers are shown (views.js), also before the first paint. */
  for (const view of ['text', 'json']) {
    try {
      const choice = localStorage.getItem(`view-${view}`);
      if (choice) root.dataset[`view${view}`] = choice;
    } catch {
      /* Storage may be forbidden: then the first view is shown. */
    }
  }
  system.addEventListener('change', paint);
  addEventListener('storage', paint);
  document.addEventListener('DOMContentLoaded', paint);
  document.addEventListener('click', (event) => {
    const button = event.target.closest('[data-theme-choice]');
    if (!button) return;
    try {
      localStorage.setItem('theme', button.dataset.themeChoice);
    } catch {
      root.dataset.bsTheme = button.dataset.themeChoice === 'dark' ? 'dark' : 'light';
      return;
    }
    paint();
  });
})();
