"""What a step of PPO spends its time on, and how verl's PPO learns for its CPU time beside TRL's RLOO."""
