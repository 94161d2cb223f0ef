/* A field with data-filter-list hides the entries of a list that do not contain its words: the elements with data-
   filter-text or, without these, those of the selector data-filter-entries, by their text. */
for (const input of document.querySelectorAll('[data-filter-list]')) {
  input.closest('[data-filter-box]')?.removeAttribute('hidden'); // without scripts it would have no effect
  input.addEventListener('input', () => {
    const list = document.querySelector(input.dataset.filterList);
    const words = input.value.trim().toLowerCase();
    let shown = 0;
    for (const item of list.querySelectorAll(input.dataset.filterEntries ?? '[data-filter-text]')) {
      item.hidden = !(item.dataset.filterText ?? item.textContent.toLowerCase()).includes(words);
      shown += item.hidden ? 0 : 1;
    }
    const none = list.querySelector('[data-filter-empty]');
    if (none && !input.hasAttribute('data-list-ask')) none.hidden = shown > 0;
  });
  /* One without a name is in a form that sends something else. */
  if (!input.name) input.addEventListener('keydown', (event) => event.key === 'Enter' && event.preventDefault());
}

/* One box ticks or unticks all that the filter shows. */
for (const all of document.querySelectorAll('[data-check-shown]')) {
  const list = document.querySelector(all.dataset.checkShown);
  const box = all.querySelector('input');
  const shown = () => [...list.querySelectorAll('label:not([hidden]) input')];
  const count = () => {
    const boxes = shown();
    const ticked = boxes.filter((one) => one.checked).length;
    box.checked = boxes.length > 0 && ticked === boxes.length;
    box.indeterminate = ticked > 0 && !box.checked;
  };
  all.hidden = false;
  count();
  box.addEventListener('change', () => {
    for (const one of shown()) one.checked = box.checked;
    count();
  });
  list.addEventListener('change', count);
  document.querySelector(`[data-filter-list="${all.dataset.checkShown}"]`).addEventListener('input', count);
}
