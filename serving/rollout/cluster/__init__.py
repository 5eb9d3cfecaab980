"""The rollout's ports on Kubernetes: the API server, Prometheus and the store. And the controller."""
