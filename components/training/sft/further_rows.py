"""Compare on dev a model that learned from the teacher's further rows with a model that did not.

    python -m components.training.sft.further_rows SETTINGS

To write the rewrites, whole models must fit into memory, so this runs where the training ran
(qinglan/jobs/module_job.py).
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
from qinglan.jobs.module_job import module_job_main, run_where_trained
from qinglan.prompts import Message
from qinglan.reward.episode import TrainingPrompt
from qinglan.reward.reward_function import read_prompt
from qinglan.rewriter.model import Student
from qinglan.rows.prompt_parquet import read_prompts

BATCH, DRAWS = 64, 2_000


class DevRow(NamedTuple):
    """A dev row with a known right passage."""

    prompt: TrainingPrompt
    messages: list[Message]
    conversation: tuple[str, str]


def read_dev_rows(path: Path, seed: int) -> list[DevRow]:
    """Read the dev rows with gold or a relevant label. If there are more than COMPARED_ROWS, this many are drawn."""
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
    """Let both models rewrite the dev rows, search with the rewrites and the plain questions, and return the gain."""
    models, prompts = [str(work / "model") for work in (without, further)], [row.messages for row in rows]
    settings, on_cpu = {"models": models, "prompts": prompts}, config.device == "cpu"
    answer = run_where_trained(write_rewrites, "sft-compare", settings, further, runner, config.processes, on_cpu)
    texts = list(zip(*answer["rewrites"], [row.prompt.question for row in rows], strict=True))
    firsts = asyncio.run(first_passages([row.prompt for row in rows], texts, gateway_url))
    gain = stage_gain([first[:2] for first in firsts], [row.conversation for row in rows], config.seed)
    return gain.model_copy(update={"unrewritten": math.fsum(first[-1] for first in firsts) / len(firsts)})


def stage_gain(firsts: Sequence[Sequence[float]], conversations: Sequence[tuple[str, str]], seed: int) -> StageGain:
    """Return the gain of the second column (with the further rows) over the first column (without them).

    Further rows are not used if less is found with them. At a tie they are used, since they are paid for and a small
    dev set shows only large differences.
    """
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


def write_rewrites(settings: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """Return the greedy rewrites of the prompts by each model, one model after another."""
    prompts, rewrites = settings["prompts"], list[list[str]]()
    for model in settings["models"]:
        student = Student.load(Path(model))
        batches = (prompts[start : start + BATCH] for start in range(0, len(prompts), BATCH))
        rewrites.append([rewrite.text for batch in batches for rewrite in student.write_messages(batch)])
    return {"rewrites": rewrites}


if __name__ == "__main__":
    sys.exit(module_job_main(sys.argv[1], write_rewrites))
