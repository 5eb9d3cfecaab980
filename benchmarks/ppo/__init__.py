"""Time of each part of a step of PPO; verl's PPO beside TRL's RLOO and a plain loop, by CPU time."""
