"""A call's whole life: target, intent, claim, final state, result, card. A call is one request to a server."""
