/* Selects that act when an option is chosen. Arrow keys change a closed select with each press, so a choice by
   keyboard takes effect with Enter or the button beside it. */
let byKeys = false; // whether the last press was a key in a select
let waiting = null; // the select that keys have changed

document.addEventListener('pointerdown', () => (byKeys = false), true);
document.addEventListener('keydown', ({ target, key }) => (byKeys = key !== 'Enter' && target.localName === 'select'), true);

/* Calls `act` with the select if `isMeant` accepts it. */
export function onChoice(isMeant, act) {
  document.addEventListener('change', ({ target }) => {
    if (target.localName !== 'select' || !isMeant(target)) return;
    waiting = byKeys ? target : null;
    if (!byKeys) act(target);
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.target !== waiting || !isMeant(waiting)) return;
    event.preventDefault();
    act(waiting);
    waiting = null;
  });
}
