"""A Kubernetes API server: the client, copies kept by watches, its refusals in words, and logins.

Jobs, the rollout's controller, `qinglan submit` and live audits stand on it.
"""
