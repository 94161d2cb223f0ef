"""Proof of the audit log: signed checkpoints, witnesses, cuts of the retention, and the lines of an export."""
