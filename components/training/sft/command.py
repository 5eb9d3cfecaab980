"""Turn settings into the command of ms-swift: pure functions that decide everything about the training."""

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
"""PyTorch's attention, which every machine has. Without flash-attn ms-swift packs no rows, as wanted:
560 rows of 150 to 250 tokens would become 44 to 70 sequences of 2,048, one or two optimizer steps per pass."""
PROCESS_CHECK_PLUGIN = HERE / "plugin" / "together.py"
"""Plug-in file that ms-swift loads, with its folder on the module path; it registers a callback of the same name."""


class Paths(NamedTuple):
    base: Path
    train: Path
    dev: Path
    output: Path


def train_command(config: SftConfig, paths: Paths, rows: int) -> Command:
    """`swift sft ...`, under torchrun where several processes train together.

    `rows` are those of paths.train. The command is the same at each attempt, so that a job is found again: where it
    goes on from is looked up by RESUME_MODULE.
    """
    entry = [sys.executable, "-m", "swift.cli.sft"]
    if _under_torchrun(config):
        entry = [sys.executable, "-m", "swift.cli.main", "sft"]
    start = [sys.executable, "-m", RESUME_MODULE, str(paths.output), "--"]
    return Command(
        [*start, *entry, *swift_flags(config, paths, rows)],
        {**swift_environment(config), **distributed_environment(config)},
    )


def swift_flags(config: SftConfig, paths: Paths, rows: int) -> list[str]:
    every = validation_interval(config, rows)
    options: dict[str, object] = {
        "model": paths.base,
        "model_type": config.model_type,
        "template": config.template,
        "check_model": False,  # it would ask a hub about a folder of ours
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
        "load_best_model_at_end": True,  # with it the best checkpoint is never among the deleted
        "metric_for_best_model": "eval_loss",
        "early_stop_interval": config.patience or None,
        "logging_steps": config.log_every,
        "logging_nan_inf_filter": False,  # a loss that is no number must be seen
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
        # Else accelerate, without a GPU, refuses bfloat16, and sees one process of several: each trains by itself.
        options["use_cpu"] = True
    if config.tuner == "lora":
        options |= {
            "lora_rank": config.lora_rank, "lora_alpha": config.lora_alpha, "target_modules": config.target_modules,
        }  # fmt: skip
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", *_words(value))]


def swift_environment(config: SftConfig) -> dict[str, str]:
    """Environment variables of every process of ms-swift."""
    variables = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    if config.device == "cpu":
        # Threads sleep while they wait: those that spin are many times slower on cores that other processes use too.
        variables |= {
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": str(config.threads),
            "OMP_WAIT_POLICY": "passive",
            "DS_ACCELERATOR": "cpu",  # DeepSpeed looks for a GPU otherwise, where its packages are a GPU's
        }
    return variables


def distributed_environment(config: SftConfig) -> dict[str, str]:
    """ms-swift starts torchrun only if NPROC_PER_NODE is set; the nodes' ranks come from qinglan.jobs.inside.

    PROCESS_CHECK_PLUGIN ends a training without either: with RANK alone, every pod would train by itself.
    """
    variables = {WORLD_SIZE_VARIABLE: str(config.nodes * config.processes)}
    if _under_torchrun(config):
        variables["NPROC_PER_NODE"] = str(config.processes)
    if config.device == "cuda":
        # One card for each process: of more that it sees, ms-swift would spread the model over them, and transformers
        # copy it to all (DataParallel).
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        cards = visible if len(visible) >= config.gpus and visible[0] else [str(n) for n in range(config.gpus)]
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(cards[: config.gpus])
    return variables


def _under_torchrun(config: SftConfig) -> bool:
    """True for several processes, and for DeepSpeed, which also starts one as a process group.

    torchrun looks the machine's full name up at each of its events
    (torch/distributed/elastic/agent/server/api.py, `socket.getfqdn`): behind a nameserver that does not answer, one
    process took 40 s longer to start and 30 s longer to end.
    """
    return config.nodes * config.processes > 1 or config.deepspeed is not None


def _words(value: object) -> list[str]:
    if isinstance(value, tuple):
        return [str(item) for item in value]
    return [str(value).lower() if isinstance(value, bool) else str(value)]
