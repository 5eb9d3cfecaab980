"""python -m benchmarks.ppo: where a PPO step's time goes, and held-out reward for CPU time of three trainers.

verl's PPO, TRL's RLOO and a plain loop start from one SFT model (a sample of its own seed, the demo's recipe) and get
the same prompts, reward, gateway and number of rollouts, on this machine. verl's CPU time holds its start and its two
tests on dev; the others' their start. What is held out is dev, written greedily and rewarded by the code that all
trained on.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.ppo.cpu import measured
from benchmarks.ppo.rloo import Job
from benchmarks.report import report
from benchmarks.science.runs import gateway, sample, settings
from commands.run.run import run_pipeline
from components.training.ppo.config import PpoConfig
from components.training.ppo.stage import ppo
from qinglan.reward.config import RewardConfig
from qinglan.reward.reward_function import read_prompt
from qinglan.reward.scorer import Scorer
from qinglan.rewriter.model import Student

TENANT, SEED, STEPS = "fivedoctors", 100, 24
LOOPS = {"rloo": "benchmarks.ppo.rloo", "plain": "benchmarks.ppo.plain_loop"}
"""Trainers beside verl, as programs of a job."""

PARTS = ("rollout", "reward_unhidden", "passes", "update", "dev")
TOGETHER = 32


class Trained(NamedTuple):
    model: Path
    cpu_minutes: float


def main(folder: Path) -> None:
    config = settings(TENANT, sample(TENANT, SEED, folder))
    run_pipeline(config, folder / "run", until="sft")
    files = folder / "run" / "files"
    with tempfile.TemporaryDirectory(dir=folder) as scratch, gateway(config, folder / "run") as url:
        here = Path(scratch)
        os.environ["QINGLAN_SCRATCH"] = str(here / "scratch")
        short_run = config.ppo.model_copy(update={"steps": STEPS, "validations": 1})
        trained = {"verl": by_verl(files, url, short_run, here)}
        [work] = (here / "scratch" / "ppo").iterdir()
        for name in LOOPS:
            trained[name] = by_loop(name, files / "sft_model", work, short_run, here)
        models = {"sft": files / "sft_model", **{name: each.model for name, each in trained.items()}}
        rewards = {
            name: held_out(model, work / "dev.parquet", url, short_run.reward) for name, model in models.items()
        }
        split = step_split(here / "log" / "metrics.jsonl")
    gains = {name: (rewards[name] - rewards["sft"]) / each.cpu_minutes for name, each in trained.items()}
    print(
        f"a step of verl: {split['seconds']:.2f} s (median of {STEPS - 1}): "
        + ", ".join(f"{part} {split[part]:.2f}" for part in PARTS)
    )
    for name, each in trained.items():
        print(f"{name}: {rewards['sft']:.3f} -> {rewards[name]:.3f} on dev in {each.cpu_minutes:.1f} CPU minutes")
    report(
        "ppo", gains["verl"] / gains["rloo"], 1.0, gains["verl"] >= gains["rloo"],
        rollouts=STEPS * short_run.collection, step_seconds=split,
        dev_reward={name: round(value, 4) for name, value in rewards.items()},
        cpu_minutes={name: round(each.cpu_minutes, 2) for name, each in trained.items()},
    )  # fmt: skip


def by_verl(files: Path, url: str, config: PpoConfig, here: Path) -> Trained:
    with measured() as meter:
        ppo(files / "sft_model", files / "ppo", here / "verl", here / "log", url, config)
    return Trained(here / "verl", meter.seconds / 60)


def by_loop(name: str, model: Path, work: Path, config: PpoConfig, here: Path) -> Trained:
    """Train with another trainer on verl's own prompts and reward settings, in a process of its own."""
    reward, out = here / f"{name}-reward.json", here / name
    reward.write_bytes(orjson.dumps({**orjson.loads((work / "reward.json").read_bytes()), "folder": f"{out}-log"}))
    job = Job(
        model=str(model), prompts=str(work / "train.parquet"), reward=str(reward), out=str(out),
        steps=config.steps, collection=config.collection, batch=config.batch, kl=config.kl,
        learning_rate=config.actor_learning_rate, max_new_tokens=config.max_new_tokens, seed=config.seed,
    )  # fmt: skip
    written = here / f"{name}-job.json"
    written.write_bytes(orjson.dumps(job._asdict()))
    with measured() as meter:
        subprocess.run([sys.executable, "-m", LOOPS[name], str(written)], check=True)
    (out / "rewriter.json").write_bytes((model / "rewriter.json").read_bytes())
    return Trained(out, meter.seconds / 60)


def held_out(model: Path, dev: Path, url: str, config: RewardConfig) -> float:
    """The mean reward of a model's greedy rewrites; every one of them judged, so that nothing is imputed."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(dev).to_pylist()
    student = Student.load(model)
    texts: list[str] = []
    for start in range(0, len(rows), TOGETHER):
        texts += [
            entry.text for entry in student.write_messages([row["prompt"] for row in rows[start : start + TOGETHER]])
        ]
    return asyncio.run(_mean_reward(rows, texts, url, config.model_copy(update={"judge_share": 1.0})))


async def _mean_reward(rows: list[dict[str, Any]], texts: list[str], url: str, config: RewardConfig) -> float:
    async with Scorer(url, config) as scorer:
        prompts = [
            read_prompt(row["extra_info"], row["reward_model"]["ground_truth"], row["data_source"]) for row in rows
        ]
        terms = await asyncio.gather(*(scorer.score(*pair) for pair in zip(prompts, texts, strict=True)))
    return statistics.fmean(entry["score"] for entry in terms)


def step_split(metrics: Path) -> dict[str, float]:
    """Medians over the steps but the first, which warms up; dev is looked at in some steps only."""
    steps = [orjson.loads(line) for line in metrics.read_bytes().splitlines()]
    trained = [step for step in steps if step.get("step", 0) > 1 and "avg_reward" in step]
    durations = {name: [step[f"seconds_{name}"] for step in trained if f"seconds_{name}" in step] for name in PARTS}
    durations["seconds"] = [step["seconds"] for step in trained]
    return {name: round(statistics.median(values), 2) if values else 0.0 for name, values in durations.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/bench-ppo").resolve())
