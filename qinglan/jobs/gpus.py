"""Check that the machine has enough GPUs for a profile, before anything starts."""

from qinglan.errors import ConfigError


def need_gpus(stage: str, required: int) -> None:
    """Raise a ConfigError with the next step if this machine has fewer than `required` GPUs."""
    import torch

    if (available := torch.cuda.device_count()) < required:
        raise ConfigError(
            f"The settings of {stage} need {required} GPUs, and this machine shows {available}. "
            "Run it where they are; or take the laptop profile (rewriter: `training: laptop`, style: `--profile "
            "laptop`), which is for tiny models; or make the data alone (rewriter: "
            "`--until convert`, style: `--until prepare`)."
        )
