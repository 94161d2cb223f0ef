"""Bundles: several servers as one for agents, with their names and URIs there."""
