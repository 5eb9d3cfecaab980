"""The commands of `qinglan rollout`: begin, list, watch and steer ModelRollouts."""
