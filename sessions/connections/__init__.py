"""A session's life: state, owner and fencing epoch, assignment to workers, commands, timeline and diagnosis. Also what
pages show of it (workers, log, process, *Test connection*), icons, and how authorization servers identify mcpadmin."""
