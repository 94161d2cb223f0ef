"""What browsers refuse because of the content security policy, as they report it: stored, bounded, for administrators."""
