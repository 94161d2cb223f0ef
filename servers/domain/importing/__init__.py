"""Importing servers from the configuration files of other MCP clients.

`document` reads the text, `entries` one server of it, `planning` says what would become of each, `applying` does it by
the verbs of `registration`, `held` keeps a preview sealed until somebody decides.
"""
