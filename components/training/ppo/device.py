"""Device on which verl trains: GPUs, or the module that a profile names instead of them (`hardware.plugin`)."""

import importlib
from typing import Protocol, cast

from components.training.ppo.config import Hardware, PpoConfig
from qinglan.errors import ConfigError

Value = str | int | float | bool | list[str] | None
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
GPUS = "components.training.ppo.gpus"


class Device(Protocol):
    """Functions that a device module must have."""

    __file__: str

    def driver(self, config: PpoConfig) -> str:
        """Return the module to start: verl's own main module, or one that runs it."""

    def modules(self, config: PpoConfig) -> tuple[str, ...]:
        """Return the modules that each process of verl imports after the stage's plugins."""

    def environment(self, config: PpoConfig) -> dict[str, str]:
        """Return the environment variables of each process of verl."""

    def overrides(self, config: PpoConfig) -> dict[str, Value]:
        """Return the overrides of verl's settings for this device."""


def load_device(hardware: Hardware) -> Device:
    """Import the device module; a ConfigError if a CPU has no plugin, or GPUs have one."""
    if (hardware.device == "cpu") != bool(hardware.plugin):
        raise ConfigError(
            f"ppo.hardware: device {hardware.device} with plugin {hardware.plugin!r}. verl needs GPUs: on a CPU a "
            "plugin stands in for them (`plugin: standins.verl_cpu`, as in `training: laptop`); on GPUs there is "
            "none."
        )
    name = hardware.plugin or GPUS
    try:
        return cast(Device, importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"ppo.hardware.plugin: there is no {name} here, and images of a release hold no stand-in. Take an "
                "image that has them (images/README.md), or device: cuda."
            ) from error
        raise
