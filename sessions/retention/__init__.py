"""Retention: what is stored, how much it takes, and what is removed by age and by size."""
