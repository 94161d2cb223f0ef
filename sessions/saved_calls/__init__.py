"""Calls under a name: saving, running, listing."""
