/* Offers the time zones that this browser knows; the server stores only the name. */
const select = document.querySelector('[data-time-zones]');
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
select.options[0].textContent = `Same as the browser (${own})`;
for (const name of Intl.supportedValuesOf('timeZone')) {
  if (name !== select.value) select.add(new Option(name.replaceAll('_', ' '), name));
}
