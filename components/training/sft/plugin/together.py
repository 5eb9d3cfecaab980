"""Plug-in for ms-swift: stop if fewer processes train one model than the settings require, and draw no pictures.

The check runs in each process after its set-up. If torch knew of all processes and the trainer did not, each process
would train its own model.
ms-swift loads it by `--external_plugins` (swift/arguments/base_args), and finds its callback in callbacks_map.
"""

import os

import torch.distributed
from swift.callbacks import callbacks_map
from swift.pipelines.train import sft
from transformers import TrainerCallback

from qinglan.errors import TrainingError
from qinglan.jobs.inside.node_info import WORLD_SIZE_VARIABLE


def check_process_count(expected: int, torch_knows: int, trainer_knows: int) -> None:
    if (torch_knows, trainer_knows) == (expected, expected) or (expected, trainer_knows) == (1, 1):
        return
    raise TrainingError(
        f"{expected} processes were to train one model; torch.distributed knows of {torch_knows} and the trainer of "
        f"{trainer_knows}, so copies of it would be trained side by side. A job's pods are started by `python -m "
        "qinglan.jobs.inside --join torchrun`, which tells ms-swift of its nodes; with RANK alone it stays by itself."
    )


class ProcessCountCheck(TrainerCallback):  # type: ignore[misc]
    def __init__(self, args, trainer) -> None:  # type: ignore[no-untyped-def]
        self._trainer = trainer

    def on_train_begin(self, args, state, control, **_) -> None:  # type: ignore[no-untyped-def]
        initialized = torch.distributed.is_initialized()
        check_process_count(
            int(os.environ.get(WORLD_SIZE_VARIABLE, "1")),
            torch.distributed.get_world_size() if initialized else 1,
            self._trainer.accelerator.num_processes,
        )


def draw_nothing(*_: object) -> None:
    """Do nothing instead of drawing TensorBoard's figures. The pictures take seconds, and their folder is removed."""


callbacks_map["together"] = ProcessCountCheck
sft.plot_images = draw_nothing
