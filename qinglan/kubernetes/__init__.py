"""Client of a Kubernetes API server, with informers, explained errors and logins.

Jobs, the rollout's controller, `qinglan submit` and live audits use it.
"""
