"""Tokens of agents: what an agent may do as a person, on which servers, for how long and from where."""
