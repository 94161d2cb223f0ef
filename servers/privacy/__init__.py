"""Privacy: masking values before they are stored, erasing stored ones, and audit events when people read them."""
