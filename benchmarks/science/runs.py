"""One run: a sample of its own seed, the whole thread, and the controls beside it. Each is done once and kept."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson

from benchmarks.science import shuffled
from commands.run.run import run_pipeline, start_services
from components.evaluation.rewriter import stage as evaluation
from components.training.ppo.export_model import export_checkpoint
from components.training.ppo.stage import ppo
from components.training.sft.stage import sft
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import REWRITER, RunConfig
from qinglan.evaluation.gates.evaluation_file import Outputs
from qinglan.files.files import atomic_folder
from qinglan.files.scratch import SCRATCH_VARIABLE
from qinglan.rewriter.card import read_card
from qinglan.tables.tables import read_table, write_table
from standins.samples import write_sample

CONVERSATIONS = 1600
WITHOUT_GOLD = "without_gold.xlsx"


def sample(tenant: str, seed: int, folder: Path, variant: str = "plain") -> Path:
    """The sample's folder, written once."""
    data = folder / "data"
    if not (data / "slices.jsonl").exists():
        write_sample(tenant, data, CONVERSATIONS, seed, variant)
    return data


def settings(tenant: str, data: Path, sheet: str = "questions.xlsx", labels: bool = False) -> RunConfig:
    """The demo's settings. Where the sheet lacks gold, judges label passages in its place, or nothing does."""
    return load_config(
        tenant, "demo", questions=data / sheet, knowledge_base=data / "knowledge_base.jsonl",
        evaluate={"slices": str((data / "slices.jsonl").resolve())}, **({} if labels else {"label": {"calls": 0}}),
    )  # fmt: skip


def thread(config: RunConfig, root: Path) -> dict[str, Any]:
    """The whole thread in a folder, or what it came to when it was run there before."""
    record = RunDir(root).record
    if not (record.exists() and orjson.loads(record.read_bytes())["status"] == "done"):
        run_pipeline(config, root)
    result: dict[str, Any] = orjson.loads((root / "files" / "evaluation.json").read_bytes())
    return result


def without_gold(data: Path) -> Path:
    """The sheet with labels in its test rows alone: nothing that learns or chooses sees one."""
    out = data / WITHOUT_GOLD
    rows = [cells for _, cells in read_table(data / "questions.xlsx")]
    with write_table(out, list(rows[0])) as add:
        for row in rows:
            add([None if name == "标准段落" and row["划分"] != "test" else value for name, value in row.items()])
    return out


@contextmanager
def gateway(config: RunConfig, root: Path) -> Iterator[str]:
    with ExitStack() as stack:
        yield start_services(config, RunDir(root), REWRITER.stages, stack)


def shuffled_rewards(config: RunConfig, root: Path, out: Path) -> Path:
    """PPO from the same SFT model with rewards that mean nothing: its best checkpoint.

    The stage itself hands on the SFT model where every checkpoint is worse, which would show nothing of the rewards.
    """
    files = root / "files"
    if not (out / "model").exists():
        os.environ[SCRATCH_VARIABLE] = str(out.resolve() / "scratch")
        with gateway(config, root) as url:
            reward = Path(shuffled.__file__)
            ppo(files / "sft_model", files / "augmented_ppo", out / "handed-on", out / "log", url, config.ppo, reward)
        [actor] = out.glob("scratch/ppo/*/best/actor")
        with atomic_folder(out / "model") as folder:
            export_checkpoint(actor, files / "sft_model", folder, read_card(out / "handed-on"))
    return out / "model"


def longer_sft(config: RunConfig, root: Path, out: Path) -> Path:
    """SFT of twice the epochs."""
    files = root / "files"
    if not (out / "model").exists():
        twice = config.sft.model_copy(update={"epochs": 2 * config.sft.epochs})
        sft(files / "base_model", learned_rows(files, out / "rows"), out / "model", out / "log", twice)
    return out / "model"


def learned_rows(files: Path, out: Path) -> Path:
    """The run's rows of SFT alone: without what SFT compares them with."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("train.jsonl", "dev.jsonl"):
        shutil.copyfile(files / "augmented_sft" / name, out / name)
    return out


def judged(config: RunConfig, root: Path, model: Path, out: Path) -> dict[str, Any]:
    """The run's own evaluation with another model in RL's place."""
    result = out / "evaluation.json"
    if not result.exists():
        files = root / "files"
        paths = Outputs(
            result, out / "report.html", out / "predictions.jsonl", out / "blind.xlsx", out / "blind_key.json"
        )
        extra = {"own": out / "chats"} if (out / "chats").exists() else {}
        with gateway(config, root) as url:
            evaluation.evaluate(
                files / "locked_test.jsonl", {"sft": files / "sft_model", "rl": model},
                {"sft": files / "augmented_sft", "ppo": files / "augmented_ppo", **extra},
                {"sft": files / "sft_log", "ppo": files / "ppo_log"}, paths, config.evaluate, url,
            )  # fmt: skip
    values: dict[str, Any] = orjson.loads(result.read_bytes())
    return values
