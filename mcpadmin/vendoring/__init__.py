"""Copies third-party browser files from npm packages into the repository, pinned by hash (development only)."""
