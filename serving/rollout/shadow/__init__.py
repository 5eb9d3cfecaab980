"""Shadow mode: a share of live questions is also rewritten by the canary, and both rewrites are compared."""
