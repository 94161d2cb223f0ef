"""One file for each page: from a request to a template. Nothing here holds a connection."""
