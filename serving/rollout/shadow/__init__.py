"""Shadow mode: the canary rewrites a share of the live questions, too, and both models' rewrites are compared."""
