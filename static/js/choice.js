/* Selects that act when something is chosen in them. The arrow keys change a closed one with each press, so what they chose
   counts with Enter, or with the button beside it. */
let byKeys = false; // whether the last press was a key in a select
let waiting = null; // the select that keys have changed

document.addEventListener('pointerdown', () => (byKeys = false), true);
document.addEventListener('keydown', ({ target, key }) => (byKeys = key !== 'Enter' && target.localName === 'select'), true);

/* Calls `act` with the select, if it is one that `isMeant` says yes to. */
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
