"""Definitions of tools, resources and prompts, in versions: what changed in them, and what they cost a model (tokens, advice)."""
