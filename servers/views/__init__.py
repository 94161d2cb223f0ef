"""One file for each page about servers, credentials and the audit log."""
