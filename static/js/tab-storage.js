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
