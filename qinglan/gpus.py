"""What a profile wants of a machine, looked at before anything starts."""

from qinglan.errors import ConfigError


def need_gpus(stage: str, wanted: int) -> None:
    """So many GPUs are here, or an error that says what to do."""
    import torch

    if (there := torch.cuda.device_count()) < wanted:
        raise ConfigError(
            f"The settings of {stage} want {wanted} GPUs, and this machine shows {there}. Run it where they are; "
            "or take the laptop profile (rewriter: `training: laptop`, style: `--profile laptop`), which is for tiny "
            "models; or make the data alone (rewriter: `--until convert`, style: `--until prepare`)."
        )
