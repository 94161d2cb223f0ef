"""Importing servers from the configuration files of other MCP clients.

`parsing` has `text` turn text into objects, in a child process; `document` finds the servers in them (`registry` those
of a `server.json`), `entries` reads one server (with `entry_reader`, which reports what it could not use), `planning`
says what would happen to each, `applying` does it through the verbs of `registration`, `stored_preview` keeps a preview
sealed until a person decides.
"""
