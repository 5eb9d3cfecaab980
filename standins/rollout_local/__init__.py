"""Rollout on one machine: the same state machine, with real servers on loopback, and Kubernetes objects in files."""
