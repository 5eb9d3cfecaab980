"""Shadow mode: the canary also rewrites a share of the live questions, and its rewrites are compared with the stable
model's."""
