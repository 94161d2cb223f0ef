"""One way to write JSON whose bytes matter (RFC 8785)."""
