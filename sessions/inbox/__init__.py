"""Requests from servers that need a person: elicitation, sampling and URLs, their answers and deadlines."""
