"""Calls of agents: from a request to a row, once each, what a server asks meanwhile, and how the outcome is told."""
