"""The rollout's surroundings on Kubernetes: the API server, Prometheus and the store, as its ports."""
