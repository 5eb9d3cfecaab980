"""From settings to ms-swift's own command: pure, and all that decides how it trains."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from components.training.sft.config import SftConfig
from qinglan.jobs import Command


class Paths(NamedTuple):
    base: Path
    train: Path
    dev: Path
    output: Path
    resume: Path | None = None
    """A checkpoint to go on from."""


def train_command(config: SftConfig, paths: Paths, environment: Mapping[str, str]) -> Command:
    """`swift sft ...`, alone on a CPU, under torchrun on GPUs."""
    entry = [sys.executable, "-m", "swift.cli.sft"]
    if config.device == "cuda":
        entry = [sys.executable, "-m", "swift.cli.main", "sft"]
    return Command([*entry, *flags(config, paths)], variables(config, environment))


def flags(config: SftConfig, paths: Paths) -> list[str]:
    given: dict[str, object] = {
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
        "eval_steps": config.evaluate_every,
        "save_steps": config.evaluate_every,
        "save_total_limit": config.keep_checkpoints,
        "load_best_model_at_end": True,  # with it the best checkpoint is never among the deleted
        "metric_for_best_model": "eval_loss",
        "early_stop_interval": config.patience or None,
        "logging_steps": config.log_every,
        "logging_nan_inf_filter": False,  # a loss that is no number must be seen
        "dataloader_num_workers": config.workers,
        "output_dir": paths.output,
        "add_version": False,
        "report_to": "none",
        "seed": config.seed,
        "data_seed": config.seed,
        "attn_impl": config.attention,
        "deepspeed": config.deepspeed,
        "packing": config.packing or None,
        "resume_from_checkpoint": paths.resume,
    }
    if config.tuner == "lora":
        given |= {
            "lora_rank": config.lora_rank, "lora_alpha": config.lora_alpha, "target_modules": config.target_modules,
        }  # fmt: skip
    return [word for name, value in given.items() if value is not None for word in (f"--{name}", _word(value))]


def merge_command(config: SftConfig, adapter: Path, merged: Path) -> Command:
    """`swift export --merge_lora`: the adapter's weights added to the base's."""
    words = [
        "--adapters",
        str(adapter),
        "--merge_lora",
        "true",
        "--output_dir",
        str(merged),
    ]
    words += ["--torch_dtype", config.dtype]
    for name, value in (("model_type", config.model_type), ("template", config.template)):
        words += [f"--{name}", value] if value else []
    return Command([sys.executable, "-m", "swift.cli.export", *words], variables(config, {}, processes=False))


def variables(config: SftConfig, environment: Mapping[str, str], processes: bool = True) -> dict[str, str]:
    """ms-swift starts torchrun only if NPROC_PER_NODE is set: with RANK alone, every pod would train by itself."""
    given = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    if config.device == "cpu":
        return given | {"CUDA_VISIBLE_DEVICES": ""}
    if processes:
        given |= {"NPROC_PER_NODE": str(config.gpus)}
        if config.nodes > 1:
            given |= {"NNODES": str(config.nodes), "NODE_RANK": environment.get("RANK", "0")}
    return given


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
