"""Reports of browsers about violations of the content security policy: stored, bounded, for administrators."""
