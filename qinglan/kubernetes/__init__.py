"""Client of a Kubernetes API server, with informers, logins, and errors that name the next step.

Jobs, the rollout's controller, `qinglan submit` and live audits use it.
"""
