/* Selecting servers in the list: a box for the whole page, and a count; actions need a selection. */
const bulk = document.getElementById('bulk');
const status = bulk.querySelector('[data-picked]');
const matching = bulk.querySelector('[data-pick-matching]');
const all = [...document.querySelectorAll('[data-pick-all]')];

const picks = () => [...document.querySelectorAll('input[name=server][form=bulk]')];

function show() {
  const boxes = picks();
  const ticked = boxes.filter((box) => box.checked).length;
  for (const box of all) {
    box.checked = ticked === boxes.length;
    box.indeterminate = ticked > 0 && ticked < boxes.length;
  }
  const any = ticked > 0 || Boolean(matching?.checked);
  status.textContent = matching?.checked ? 'All matching servers selected' : `${ticked} selected`;
  for (const button of bulk.querySelectorAll('button')) button.disabled = !any;
  for (const box of [...boxes, ...all]) box.disabled = Boolean(matching?.checked);
}

document.addEventListener('change', ({ target }) => {
  if (all.includes(target)) for (const box of picks()) box.checked = target.checked;
  if (target === matching || all.includes(target) || target.matches('input[name=server]')) show();
});
for (const box of all) box.hidden = false;
bulk.querySelector('[data-pick-page]').hidden = false;
addEventListener('pageshow', show); // ticks that the browser restored
show();
