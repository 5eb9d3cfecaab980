"""Build ms-swift's command from our settings. All functions are pure.

Options: https://swift.readthedocs.io/en/latest/Instruction/Command-line-parameters.html
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple

from components.training.sft.config import SftConfig
from components.training.sft.steps import validation_interval
from qinglan.jobs import Command
from qinglan.jobs.inside.node_info import WORLD_SIZE_VARIABLE
from qinglan.live.trackers import training_name

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RESUME_MODULE = "components.training.sft.resume"
ATTENTION = "sdpa"
"""PyTorch's attention, which every machine has. Without flash-attn ms-swift does not pack rows. This is intended,
since 560 packed rows of 150 to 250 tokens (44 to 70 sequences of 2,048) would be only one or two steps per pass."""

PROCESS_CHECK_PLUGIN = HERE / "plugin" / "together.py"
"""Plug-in file for ms-swift. It registers a callback under the file's name."""


class Paths(NamedTuple):
    base: Path
    train: Path
    dev: Path
    output: Path


def train_command(config: SftConfig, paths: Paths, rows: int) -> Command:
    """Return `swift sft ...`, under torchrun if several processes train together; `rows` is the number of training
    rows.

    The command is the same at each attempt, so that a running job is recognised. RESUME_MODULE therefore looks up the
    checkpoint to resume from when the job starts.
    """
    # swift.cli.main starts torchrun if NPROC_PER_NODE is set; swift.cli.sft trains in its own process.
    entry = ["swift.cli.main", "sft"] if _under_torchrun(config) else ["swift.cli.sft"]
    start = [sys.executable, "-m", RESUME_MODULE, str(paths.output), "--", sys.executable, "-m", *entry]
    environment = {**swift_environment(config), **distributed_environment(config)}
    return Command([*start, *swift_flags(config, paths, rows)], environment)


def swift_flags(config: SftConfig, paths: Paths, rows: int) -> list[str]:
    every = validation_interval(config, rows)
    options: dict[str, object] = {
        "model": paths.base,
        "model_type": config.model_type,
        "template": config.template,
        "check_model": False,  # no request to a hub about our own folder
        "tuner_type": config.tuner,
        "dataset": paths.train,
        "val_dataset": paths.dev,
        "torch_dtype": config.dtype,
        "num_train_epochs": config.epochs,
        "per_device_train_batch_size": config.batch,
        "per_device_eval_batch_size": config.eval_batch,
        "gradient_accumulation_steps": config.accumulation,
        "learning_rate": config.learning_rate,
        "warmup_ratio": config.warmup,
        "max_length": config.max_length,
        "strict": True,  # a row that cannot be rendered is an error, not left out
        "eval_steps": every,
        "save_steps": every,
        "save_total_limit": config.keep_checkpoints,
        # transformers then never deletes the best checkpoint (transformers/trainer_utils.py, rotate_checkpoints).
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "early_stop_interval": config.patience or None,
        "logging_steps": config.log_every,
        "logging_nan_inf_filter": False,  # else transformers logs the last finite loss in place of a NaN
        "dataloader_num_workers": config.workers,
        "output_dir": paths.output,
        "add_version": False,
        "report_to": config.trackers or "none",
        "run_name": training_name("sft"),
        "seed": config.seed,
        "data_seed": config.seed,
        "attn_impl": ATTENTION,
        "deepspeed": config.deepspeed,
        "gradient_checkpointing": config.device == "cuda" and config.checkpointing,
        "external_plugins": PROCESS_CHECK_PLUGIN,
        "callbacks": PROCESS_CHECK_PLUGIN.stem,
    }
    if config.device == "cpu":
        # Without it accelerate refuses bfloat16 on a CPU and starts no process group: each process would train alone.
        options["use_cpu"] = True
    if config.tuner == "lora":
        options |= {
            "lora_rank": config.lora_rank, "lora_alpha": config.lora_alpha, "target_modules": config.target_modules,
        }  # fmt: skip
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", *_words(value))]


def swift_environment(config: SftConfig) -> dict[str, str]:
    variables = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    if config.device == "cpu":
        # Waiting threads sleep. If they spin, they are many times slower on cores that other processes use too:
        # https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fWAIT_005fPOLICY.html
        variables |= {
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": str(config.threads),
            "OMP_WAIT_POLICY": "passive",
            "DS_ACCELERATOR": "cpu",  # else DeepSpeed looks for a GPU, if its packages are those for GPUs
        }
    return variables


def distributed_environment(config: SftConfig) -> dict[str, str]:
    """Return the environment by which the processes train together; the nodes' ranks come from qinglan.jobs.inside.

    Without NPROC_PER_NODE ms-swift starts no torchrun, and each pod would train its own model, even if RANK is set.
    PROCESS_CHECK_PLUGIN stops such a training.
    """
    variables = {WORLD_SIZE_VARIABLE: str(config.nodes * config.processes)}
    if _under_torchrun(config):
        variables["NPROC_PER_NODE"] = str(config.processes)
    if config.device == "cuda":
        # One card for each process. ms-swift would spread a model over all cards that it sees, and transformers would
        # copy it to each of them (torch.nn.DataParallel).
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        cards = visible if len(visible) >= config.gpus and visible[0] else [str(n) for n in range(config.gpus)]
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(cards[: config.gpus])
    return variables


def _under_torchrun(config: SftConfig) -> bool:
    """True if torchrun is needed: for several processes, and for DeepSpeed, which always needs a process group.

    A single process is started without torchrun: torchrun resolves the machine's full name at each of its events
    (torch/distributed/elastic/agent/server/api.py, `socket.getfqdn`). With a nameserver that did not answer, one
    process took 40 s longer to start and 30 s longer to end.
    """
    return config.nodes * config.processes > 1 or config.deepspeed is not None


def _words(value: object) -> list[str]:
    if isinstance(value, tuple):
        return [str(item) for item in value]
    return [str(value).lower() if isinstance(value, bool) else str(value)]
