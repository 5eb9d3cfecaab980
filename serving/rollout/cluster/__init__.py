"""Rollout controller for Kubernetes, and the adapters of the rollout's ports: API server, Prometheus and store."""
