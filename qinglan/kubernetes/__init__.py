"""A Kubernetes API server: client, informers, explained errors and logins.

Jobs, the rollout's controller, `qinglan submit` and live audits stand on it.
"""
