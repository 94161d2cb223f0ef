/* What a tab remembers while it lives: text by key, null to forget it. Storage may be forbidden; then nothing outlives
   the page. */
export function kept(key, value) {
  try {
    if (value === undefined) return sessionStorage.getItem(key);
    if (value === null) sessionStorage.removeItem(key);
    else sessionStorage.setItem(key, value);
  } catch {
    /* Then each page counts as a tab of its own. */
  }
  return value ?? null;
}

/* Keys of drafts.js. The shell forgets them when a person signs out, and does not load the rest. */
export const DRAFTS = 'draft:';

export function forgetDrafts() {
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(DRAFTS)) sessionStorage.removeItem(key);
  } catch {
    /* Nothing was kept. */
  }
}
