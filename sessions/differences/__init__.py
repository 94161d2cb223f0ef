"""What changed between two texts or two JSON values, line by line and value by value."""
