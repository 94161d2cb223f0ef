"""Calls of programs that wait for a person: approved, refused, expired or voided."""
