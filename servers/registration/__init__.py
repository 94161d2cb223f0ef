"""A server's registration: forms, checks, registering, test drafts, import and export."""
