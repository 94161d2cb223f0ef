"""Tokens of agents: what an agent may do as a person, at which servers, how long and from where"""
