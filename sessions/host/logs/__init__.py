"""The log of each session: what the server says and what the host did, written in batches."""
