"""Sends the calls of the sessions that this worker owns, and records how they ended."""
