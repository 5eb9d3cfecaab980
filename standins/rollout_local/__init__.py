"""A rollout on one machine: the same state machine over real servers on loopback, its objects in files."""
