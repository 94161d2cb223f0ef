"""The settings of this instance: their values, sources and effects, and changing those that pages can change."""
