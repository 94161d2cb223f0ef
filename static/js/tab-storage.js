/* What a tab remembers while it lives: text by key. Storage may be forbidden; then nothing outlives the page. */
export function kept(key, value) {
  try {
    if (value === undefined) return sessionStorage.getItem(key);
    sessionStorage.setItem(key, value);
  } catch {
    /* Then each page counts as a tab of its own. */
  }
  return value ?? null;
}
