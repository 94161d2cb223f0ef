"""The settings of this instance: each value, where it comes from, what it does, and changing those that pages can change."""
