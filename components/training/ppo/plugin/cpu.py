"""verl on a machine without a GPU."""

from components.training.ppo.plugin import cpu_platform, jagged, patches, rollout

__all__ = ["cpu_platform", "jagged", "patches", "rollout"]
