"""Privacy: what is masked before it is stored, erasing what was stored, and events of reading it."""
