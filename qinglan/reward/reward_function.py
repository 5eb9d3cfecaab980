"""Reward function for verl: `reward.custom_reward_function.path` is this file, `.name` is compute_score.

The keyword `settings` names a settings file, {"gateway_url", "config", "folder"}. Every rollout is written to the
folder with all its terms. An error that makes rewards impossible is written there too: see outage.py.
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import orjson
from pydantic import ValidationError

from qinglan.config import Config, explain_validation_error
from qinglan.errors import DataError, QinglanError
from qinglan.reward.config import RewardConfig
from qinglan.reward.episode import TrainingPrompt
from qinglan.reward.outage import read_outage, write_outage
from qinglan.reward.scorer import Scorer


class RewardSettings(Config):
    """Settings of a reward worker, the same on every machine."""

    gateway_url: str
    """Address of the run's gateway."""

    config: RewardConfig = RewardConfig()
    """Settings of the reward."""

    folder: Path
    """Folder, shared by all machines, for rollouts and for the outage file."""


class RewardWorker:
    """Scorer and rollout file of one event loop in one process."""

    def __init__(self, settings: RewardSettings) -> None:
        self.folder = settings.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._scorer = Scorer(settings.gateway_url, settings.config)
        self._rollouts = self.folder / f"rollouts-{socket.gethostname()}-{os.getpid()}.jsonl"

    async def score(self, rollouts: Sequence[tuple[TrainingPrompt, str]]) -> list[dict[str, float]]:
        """Score rewrites and return their terms in the same order; each rollout is written to the rollout file."""
        terms = await self._scorer.score_all(rollouts)
        at = round(time.time(), 3)
        lines = [
            {"at": at, "id": prompt.id, "split": prompt.split, "rewrite": text, **term}
            for (prompt, text), term in zip(rollouts, terms, strict=True)
        ]
        with self._rollouts.open("ab") as file:  # one write of whole lines, which a killed worker leaves whole
            file.write(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        return terms

    async def aclose(self) -> None:
        await self._scorer.aclose()


# verl runs the reward function in event loops of its own: clients belong to one loop and cannot be shared.
_workers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, RewardWorker]] = WeakKeyDictionary()


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    settings: str = "",
    **_: Any,
) -> dict[str, float]:
    """Compute the reward, under the key "score", and all its terms; `ground_truth` is the row's need."""
    sample = {"data_source": data_source, "solution_str": solution_str, "ground_truth": ground_truth}
    [terms] = await compute_scores([{**sample, "extra_info": extra_info}], settings)
    return terms


async def compute_scores(samples: Sequence[Mapping[str, Any]], settings: str) -> list[dict[str, float]]:
    """Score all samples of a step at once; each sample holds arguments of `compute_score` by name.

    An error that makes rewards impossible is raised and written to outage.json. Later calls raise it immediately.
    """
    worker = _worker(settings)
    if (stopped := read_outage(worker.folder)) is not None:
        raise stopped
    id = str((samples[0]["extra_info"] or {}).get("id", "")) if len(samples) == 1 else ""
    try:
        prompts = [
            read_prompt(sample["extra_info"] or {}, sample["ground_truth"], sample["data_source"])
            for sample in samples
        ]
        return await worker.score([(p, str(s["solution_str"])) for p, s in zip(prompts, samples, strict=True)])
    except QinglanError as error:
        write_outage(worker.folder, error, id)
        raise
    except Exception as error:
        failure = QinglanError(
            f"A reward worker failed: {type(error).__name__}: {error}. Its traceback is in the log."
        )
        write_outage(worker.folder, failure, id)
        raise


def read_prompt(row: dict[str, Any], ground_truth: str, data_source: str) -> TrainingPrompt:
    """Read a training row from verl's extra_info; raises a DataError for a missing field or another row's need."""
    if row.get("need") != ground_truth:
        raise DataError(
            f"row {row.get('id')!r} of {data_source}: its ground_truth is not the need that its retrievals were "
            "scored against. Convert the validated rows again."
        )
    try:
        return TrainingPrompt.model_validate(row)
    except ValidationError as error:
        raise DataError(
            f"extra_info of row {row.get('id')!r} of {data_source}: {explain_validation_error(error)}. "
            "Validate and convert again: the reward needs what these stages write."
        ) from error


async def close() -> None:
    """Close the workers of this event loop. A process that ends may leave them open."""
    for worker in _workers.pop(asyncio.get_running_loop(), {}).values():
        await worker.aclose()


def _worker(settings: str) -> RewardWorker:
    workers = _workers.setdefault(asyncio.get_running_loop(), {})
    if settings not in workers:
        workers[settings] = RewardWorker(read_settings(settings))
    return workers[settings]


def read_settings(path: str) -> RewardSettings:
    return RewardSettings.parse(orjson.loads(Path(path).read_bytes()), path)
