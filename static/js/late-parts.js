/* Parts that are loaded once they come into sight (data-late); if one fails, it says so and offers a button. */

function show(part, failed) {
  part.querySelector('[data-coming]').hidden = failed;
  part.querySelector('[data-failed]').hidden = !failed;
}

export function startLateParts() {
  const follow = (kind, failed) =>
    document.body.addEventListener(kind, ({ detail: { ctx } }) => {
      if (ctx?.sourceElement.matches('[data-late]')) show(ctx.sourceElement, failed);
    });
  follow('htmx:before:request', false);
  follow('htmx:response:error', true);
  follow('htmx:error', true);
}
