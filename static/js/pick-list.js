/* The lists of tools, resources and prompts: the chosen entry is in sight, and Enter in the search opens the first hit. */
for (const chosen of document.querySelectorAll('.pane a[aria-current]')) {
  const pane = chosen.closest('.pane');
  const [box, row] = [pane.getBoundingClientRect(), chosen.getBoundingClientRect()];
  /* Not scrollIntoView, which would move the page below it too. */
  if (row.height && (row.top < box.top || row.bottom > box.bottom)) pane.scrollTop += row.top - box.top - box.height / 3;
}

/* Where the list is cut, or shows what another search found, Enter asks the server, which opens its first hit itself. */
for (const input of document.querySelectorAll('[data-filter-list]')) {
  input.form.addEventListener('submit', (event) => {
    const words = input.value.trim();
    const asked = words !== input.defaultValue && (input.defaultValue || input.hasAttribute('data-list-cut'));
    const hit = [...document.querySelectorAll(`${input.dataset.filterList} [data-filter-text]:not([hidden]) a`)].find((link) => link.checkVisibility());
    if (!words || asked || !hit) return;
    event.preventDefault();
    location.assign(hit.href);
  });
}
