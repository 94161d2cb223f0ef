"""Bytes and processes: stdio, Streamable HTTP, HTTP+SSE and WebSocket behind one interface."""
