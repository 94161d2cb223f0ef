"""Authorization for MCP without I/O: which requests to send where, and what the answers mean.

Each flow is a generator that yields an HttpRequest and receives the HttpResponse; `client/authorization.py` drives it.
Sources: MCP *Authorization* of each revision; RFC 6749, 7523, 7591, 7636, 8414, 8693, 8707, 9207, 9449, 9728.
"""
