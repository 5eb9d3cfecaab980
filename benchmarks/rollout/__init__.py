"""Seeded schedules of faults, a KServe of plain data, and what the rollout's controller does with them."""
