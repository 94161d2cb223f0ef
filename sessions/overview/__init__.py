"""What pages show of servers and sessions: rows, numbers, the head of a server's page."""
