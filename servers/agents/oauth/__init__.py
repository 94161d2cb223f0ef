"""OAuth 2.1 for agents: this installation as authorization server and as protected resource (MCP *Authorization*).

The protocol is oauthlib's. Clients, grants and tokens are rows of ours, so that a grant is a token of an agent like
those that people issue by hand: one list, one limit, one way to revoke.
"""
