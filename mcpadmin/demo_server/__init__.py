"""The demo server: a small, complete MCP server over stdio, so that a new installation has something to talk to.

    python -m mcpadmin.demo_server

It needs the standard library only and does not import Django, so it starts in a blink. It speaks the revisions from
2024-11-05 to 2025-11-25 (`initialize`) and 2026-07-28 (`server/discover`, `_meta` on every request).

Modules, lowest first: `errors` and `eras` (words of the protocol), `wire` (lines), `call` (one request being served),
`notes`, `picture` (what it has to offer), `tools`, `resources`, `prompts` (the offer in MCP's terms), `watch`
(subscriptions), `server` (methods).
"""
