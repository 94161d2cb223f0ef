"""Template tags and filters that every page shares."""
