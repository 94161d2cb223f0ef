"""The server's side of Streamable HTTP, without I/O: reads what an agent sent, and says what to answer. No clock."""
