"""Definitions of tools, resources and prompts, in versions."""
