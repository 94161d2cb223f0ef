"""The audit log: one hash chain of events, the payloads beside it, its verification and its filters."""
