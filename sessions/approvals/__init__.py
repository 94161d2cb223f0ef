"""Calls of agents that wait for a person: approved, refused, expired or voided."""
