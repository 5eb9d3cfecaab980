"""Lineage: signed statements of every step, the walk over them, releases, and the check before deployment."""
