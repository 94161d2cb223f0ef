"""Tokens of agents: what a program may do as a person, at which servers, how long and from where"""
