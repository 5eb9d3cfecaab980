"""What `qinglan rollout` knows of ModelRollouts: told, spoken to, watched, begun."""
