"""Time of each part of a step of PPO, and how verl's PPO learns for its CPU time beside TRL's RLOO."""
