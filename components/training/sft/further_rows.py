"""Do the teacher's further rows pay? The model that learned from them is asked dev questions beside one that did not.

    python -m components.training.sft.further_rows SETTINGS

The rewrites take whole models in memory, so they are written where the training ran (see qinglan/jobs/module_job.py).
"""

import asyncio
import math
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from components.training.sft.config import COMPARED_ROWS, SftConfig
from qinglan.evaluation.first_passages import first_passages
from qinglan.evaluation.stage_gain import StageGain
from qinglan.evaluation.statistics import bootstrap_means, group_numbers
from qinglan.jobs import Runner
from qinglan.jobs.module_job import module_job_main, run_module_job
from qinglan.prompts import Message
from qinglan.reward.episode import TrainingPrompt
from qinglan.reward.reward_function import read_prompt
from qinglan.rewriter.model import Student
from qinglan.rows.prompt_parquet import read_prompts

BATCH, DRAWS = 64, 2_000


class DevRow(NamedTuple):
    """A dev row with a passage that is known to be right."""

    prompt: TrainingPrompt
    messages: list[Message]
    conversation: tuple[str, str]


def read_dev_rows(path: Path, seed: int) -> list[DevRow]:
    """Read the dev rows with gold or a relevant label; of more than COMPARED_ROWS some are drawn."""
    rows = []
    for row in read_prompts(path):
        extra = row["extra_info"]
        prompt = read_prompt(extra, row["reward_model"]["ground_truth"], row["data_source"])
        if prompt.relevant:
            rows.append(DevRow(prompt, row["prompt"], (prompt.tenant_id, extra["conversation_id"])))
    return rows if len(rows) <= COMPARED_ROWS else random.Random(seed).sample(rows, COMPARED_ROWS)


def compare(
    without: Path, further: Path, rows: Sequence[DevRow], config: SftConfig, runner: Runner, gateway_url: str
) -> StageGain:
    """Ask the models in these work folders the dev rows, and search for what they write and for the questions."""
    written = _rewrites([without / "model", further / "model"], rows, further, config, runner)
    texts = list(zip(*written, [row.prompt.question for row in rows], strict=True))
    firsts = asyncio.run(first_passages([row.prompt for row in rows], texts, gateway_url))
    gain = stage_gain([first[:2] for first in firsts], [row.conversation for row in rows], config.seed)
    return gain.model_copy(update={"unrewritten": math.fsum(first[-1] for first in firsts) / len(firsts)})


def stage_gain(firsts: Sequence[Sequence[float]], conversations: Sequence[tuple[str, str]], seed: int) -> StageGain:
    """Gain of the second column over the first. Further rows with which less is found are not taken; at a tie they
    are, since they are paid for and a small dev set tells little."""
    pairs = np.array(firsts, dtype=np.float64)
    columns = np.column_stack([pairs, pairs[:, 1] - pairs[:, 0]])
    before, after, gain = bootstrap_means(columns, group_numbers(conversations), DRAWS, seed)
    return StageGain(
        rows=len(firsts), measure="right passage first", before=before.value, after=after.value,
        interval=None if math.isnan(gain.low) else (gain.low, gain.high), taken=gain.value >= 0,
    )  # fmt: skip


def gain_in_words(gain: StageGain) -> str:
    return (
        f"Of {gain.rows:,} dev rows {gain.after:.1%} find the right passage first with the teacher's further rows, "
        f"{gain.before:.1%} without: they are {'used' if gain.taken else 'left out'}."
    )


def _rewrites(
    models: Sequence[Path], rows: Sequence[DevRow], work: Path, config: SftConfig, runner: Runner
) -> list[list[str]]:
    """Rewrites by each model; as `finish` does, in a process of its own unless the models are small."""
    settings = {"models": [str(model) for model in models], "prompts": [row.messages for row in rows]}
    if config.device == "cpu" and not runner.remote:
        return write_rewrites(settings)["rewrites"]
    module, log = "components.training.sft.further_rows", work / "log" / "further_rows.log"
    answer = run_module_job(
        runner, "sft-compare", module, settings, work / "further_rows.json", log, config.processes
    )
    rewrites: list[list[str]] = answer["rewrites"]
    return rewrites


def write_rewrites(settings: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Greedy rewrites of the prompts by each model, one model after another."""
    return {"rewrites": [_write(Path(model), settings["prompts"]) for model in settings["models"]]}


def _write(model: Path, prompts: Sequence[list[Message]]) -> list[str]:
    student = Student.load(model)
    batches = (prompts[start : start + BATCH] for start in range(0, len(prompts), BATCH))
    return [rewrite.text for batch in batches for rewrite in student.write_messages(batch)]


if __name__ == "__main__":
    sys.exit(module_job_main(sys.argv[1], write_rewrites))
