"""verl on a machine without a GPU."""

from components.training.ppo.plugin import patches, platform, rollout

__all__ = ["patches", "platform", "rollout"]
