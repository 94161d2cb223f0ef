"""A session's life: state, owner and fencing epoch, assignment to workers, commands, timeline and diagnosis."""
