"""The server requests of open sessions that wait for a person."""
