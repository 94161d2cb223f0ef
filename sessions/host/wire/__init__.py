"""Records the wire of each session: masked, bounded, and written when nothing else waits"""
