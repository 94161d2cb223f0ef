"""JSON Schema: forms from it, values checked against it, compatibility of two versions."""
