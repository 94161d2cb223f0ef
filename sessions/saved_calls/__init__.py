"""Named calls: saving, running, listing."""
