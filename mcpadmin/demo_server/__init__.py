"""The demo server: a small, complete MCP server over stdio, so that a new installation has something to talk to.

    python -m mcpadmin.demo_server

It uses only the standard library and does not import Django, so it starts quickly. It supports the revisions from
2024-11-05 to 2025-11-25 (`initialize`) and 2026-07-28 (`server/discover`, `_meta` on every request).

Modules, lowest layer first: `eras` (differences between the revisions), `rpc` (errors, framing, one request in
progress), `resources` (with the notes and the subscriptions), `tools`, `prompts`, `server` (the loop and the methods).
"""
