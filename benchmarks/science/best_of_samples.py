"""Best of k as a training of its own: SFT on what the SFT model's samples find and its likeliest rewrites do not."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet

from benchmarks.science import runs
from components.evaluation.rewriter.sample_rewrites import sample_rewrites
from components.training.sft.stage import sft
from pipelines.lines.rewriter import RunConfig
from qinglan.evaluation.first_passages import first_passages
from qinglan.reward.reward_function import read_prompt

SAMPLES = 8


def best_of_samples(config: RunConfig, root: Path, out: Path) -> Path:
    """SFT once more, also on the best of eight samples of the SFT model where its likeliest rewrite finds nothing."""
    files, chats = root / "files", out / "chats"
    if (out / "model").exists():
        return out / "model"
    chats.mkdir(parents=True, exist_ok=True)
    rows = (files / "augmented_sft" / "train.jsonl").read_bytes().splitlines()
    with runs.gateway(config, root) as url:
        rows += map(orjson.dumps, found_by_samples(files, config, url))
    (chats / "train.jsonl").write_bytes(b"\n".join(rows) + b"\n")
    (chats / "dev.jsonl").write_bytes((files / "augmented_sft" / "dev.jsonl").read_bytes())
    sft(files / "base_model", chats, out / "model", out / "log", config.sft)
    return out / "model"


def found_by_samples(files: Path, config: RunConfig, url: str) -> list[dict[str, Any]]:
    """Chats of the training prompts whose likeliest rewrite misses while a sample finds the right passage."""
    rows = pyarrow.parquet.read_table(files / "augmented_ppo" / "train.parquet").to_pylist()
    written = sample_rewrites(
        files / "sft_model", [row["prompt"] for row in rows], SAMPLES, config.evaluate.seed, config.evaluate
    )
    texts = [[greedy, *samples] for greedy, samples in zip(written.greedy, written.samples, strict=True)]
    prompts = [
        read_prompt(row["extra_info"], row["reward_model"]["ground_truth"], row["data_source"]) for row in rows
    ]
    firsts = asyncio.run(first_passages(prompts, texts, url))
    chats = []
    for row, samples, (greedy_right, *samples_right) in zip(rows, written.samples, firsts, strict=True):
        if not greedy_right and any(samples_right):
            answer = {"role": "assistant", "content": samples[samples_right.index(1.0)]}
            metadata = {"tenant_id": row["extra_info"]["tenant_id"]}
            chats.append({"messages": [*row["prompt"], answer], "metadata": metadata})
    return chats
