"""Tasks that span features: dead workers, changed registrations."""
