/* Small helpers of the other modules. */

export function fromTemplate(name) {
  const template = document.querySelector(`template[data-template="${name}"]`);
  return template ? template.content.firstElementChild.cloneNode(true) : null;
}

export function slot(root, name) {
  return root.querySelector(`[data-slot="${name}"]`);
}

/* 1409 -> 1,409, as the pages write counts. */
export const number = (count) => count.toLocaleString('en');

export function csrfToken() {
  return document.body.dataset.csrf ?? document.querySelector('input[name=csrfmiddlewaretoken]')?.value ?? '';
}

export function storage(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(key);
    localStorage.setItem(key, value);
  } catch {
    /* Storage may be blocked: then the choice lasts for this page only. */
  }
  return value ?? null;
}

/* Why a request failed, in words for users: the messages of `fetch` are not. */
export function reasonOf(problem) {
  const unanswered = problem instanceof TypeError || ['AbortError', 'TimeoutError'].includes(problem.name);
  return unanswered ? 'No response from mcpadmin. Check the connection and try again.' : problem.message;
}

/* A polite announcement for screen readers, at most one in five seconds; the last one wins. */
let waiting = null;
let timer = 0;

export function announce(words) {
  waiting = words;
  if (timer) return;
  speak();
  timer = setTimeout(() => {
    timer = 0;
    if (waiting !== null) announce(waiting);
  }, 5000);
}

function speak() {
  document.querySelector('[data-announced]').textContent = waiting;
  waiting = null;
}
