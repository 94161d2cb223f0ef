"""Browser reports about violations of the content security policy: stored in limited number, shown to
administrators."""
