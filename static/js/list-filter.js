/* A field with data-filter-list hides those entries of a list that do not have its words: the elements with
   data-filter-text or, without such words, those of the selector data-filter-entries, by their text. */
for (const input of document.querySelectorAll('[data-filter-list]')) {
  input.closest('[data-filter-box]')?.removeAttribute('hidden'); // without scripts it would do nothing
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
  /* One without a name stands in a form that sends something else. */
  if (!input.name) input.addEventListener('keydown', (event) => event.key === 'Enter' && event.preventDefault());
}

/* One box ticks or unticks all that the filter shows. */
for (const all of document.querySelectorAll('[data-check-shown]')) {
  const boxes = [...document.querySelectorAll(`${all.dataset.checkShown} input[type=checkbox]`)];
  const box = all.querySelector('input');
  const count = () => {
    const ticked = boxes.filter((one) => one.checked).length;
    box.checked = ticked === boxes.length;
    box.indeterminate = ticked > 0 && !box.checked;
  };
  all.hidden = false;
  count();
  box.addEventListener('change', () => {
    for (const one of boxes) if (!one.parentElement.hidden) one.checked = box.checked;
    count();
  });
  document.querySelector(all.dataset.checkShown).addEventListener('change', count);
}
