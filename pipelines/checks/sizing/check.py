"""Check, before anything is paid, that no stage needs more memory or disk than its machine has."""

import shutil
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from components.training.base.config import BaseConfig
from pipelines.checks.sizing.needs import WHOLE_RUN, Machine, model_shape
from pipelines.checks.sizing.report import DEFAULT_CARD, FitReport, Workload, fit_report
from pipelines.checks.sizing.table import verdict_lines
from pipelines.lines.line import LineConfig
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import ConfigError, DataError
from qinglan.sizing.cards import Card
from qinglan.sizing.constants import GB
from qinglan.sizing.host_memory import host_bytes

TRAININGS = frozenset({"sft", "ppo", "style", "distil"})
"""Stages that hold a whole training in a machine's memory."""

DISK_BLOCK = 512
"""Bytes of one of the blocks that a file's status counts (`st_blocks`)."""


def uncounted_models(config: LineConfig) -> list[str]:
    """Return the models, by public name or folder, whose shape is unknown. A tiny base is never among them."""
    base: BaseConfig | None = getattr(config, "base", None)
    names = [base.model] if base and base.source == "hub" else []
    if isinstance(config, RunConfig) and config.ppo.critic_model:
        names.append(config.ppo.critic_model)
    return [name for name in names if model_shape(name) is None]


def planned_fit_report(
    config: LineConfig, name: str, load: Workload, stages: Collection[str] | None = None
) -> FitReport | None:
    """Build the report for a plan; None also if a model cannot be read, which another check reports."""
    try:
        return fit_report(config, name, load=load, stages=stages)
    except DataError:
        return None


def volume_bytes(config: LineConfig) -> dict[str, float]:
    """Return the highest number of bytes that a run on a cluster keeps on each volume, by the volume's claim."""
    report = fit_report(config, "this profile") if on_gpus(config) else None
    claims = {"scratch volume": config.cluster.scratch, "base weights": config.cluster.base_weights}
    rooms = [room for room in report.rooms if room.stage == WHOLE_RUN] if report else []
    return {claims[room.room]: room.needed * GB for room in rooms}


def on_gpus(config: LineConfig) -> bool:
    return any(machine.gpus for machine in config.machines().values())


def check_fit(
    config: LineConfig, machine: Machine | None = None, stages: Collection[str] | None = None, volumes: bool = True
) -> None:
    """Raise a ConfigError if one of `stages`, by default of all stages, needs more than its machine has.

    Without a `machine`, the needs are compared with the machines of the profile's cluster, and nothing is checked if
    the profile uses no GPU. If `volumes` is False, the volume sizes in the manifests are ignored, because another
    check reads the cluster's own claims.
    """
    if machine is None and not on_gpus(config):
        return
    report = fit_report(config, "this profile", machine.card if machine else None, machine, stages=stages)
    rooms = [room for room in report.rooms if volumes or room.stage != WHOLE_RUN] if report else []
    if report and not all(room.fits for room in rooms):
        part = report.model_copy(update={"rooms": tuple(rooms), "fits": False})
        raise ConfigError(*verdict_lines(part), "`qinglan fit` shows what it is made of. Nothing was paid for.")


def check_room(config: LineConfig, folder: Path, stages: Collection[str]) -> None:
    """Raise a ConfigError if these stages need more memory, disk or GPU memory than this machine has."""
    if any(config.machines()[stage].gpus for stage in stages):
        machine = this_machine(folder)
    else:
        machine = cpu_machine(folder) if TRAININGS & {*stages} else None
    if machine:
        with suppress(DataError):  # a model that cannot be read is reported elsewhere
            check_fit(config, machine, stages)


def cpu_machine(folder: Path) -> Machine:
    """Measure memory and disk of this machine, for a training on its processors."""
    return Machine(DEFAULT_CARD, host_bytes(), run_disk(folder), folder)


def run_disk(folder: Path) -> float:
    """Return the bytes of disk for a run in the folder: the free space, and the files of earlier tries there.

    The result is at least one byte, because 0 means an unknown disk.
    """
    return max(1, sum(map(_disk_bytes, folder.rglob("*"))) + free_bytes(folder))


def _disk_bytes(path: Path) -> int:
    """Return a file's bytes on the disk, divided by its number of hard links."""
    try:
        status = path.lstat()
    except FileNotFoundError:  # another run in the folder has just removed it; the folder's lock will refuse this run
        return 0
    return status.st_blocks * DISK_BLOCK // status.st_nlink if stat.S_ISREG(status.st_mode) else 0


def this_machine(folder: Path) -> Machine | None:
    """Measure GPU memory, memory and disk of this machine; None if it has no GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    memory = torch.cuda.get_device_properties(0).total_memory
    card = Card(torch.cuda.get_device_name(0), memory / GB, memory)
    return Machine(card, host_bytes(), run_disk(folder), folder)


def free_bytes(folder: Path) -> int:
    """Return the free bytes on the disk where the folder is or will be."""
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
