"""python -m benchmarks.faulty_reward: 0, 1, 5 and 20 % of the judge's calls fail; ours beside verl's manager.

The stand-in judge gives 429, 500, HTML, broken JSON or nothing at the given rate, and every rollout is judged. Ours
asks through the run's gateway, which tries again; verl's `rate_limited` manager has a reward function of the same
formula that asks once, and makes its exception a 0.

rewards     512 sampled rewrites of the SFT model, rewarded both ways: how many rewards are not those by a judge that
            never fails
training    TRL's RLOO with both: what the trained models find on dev
resume      our training killed with SIGKILL and called again: the same rollouts and rewards, and nothing paid twice

All three without an argument, else those that are named. What was done is kept in runs/bench-faulty-reward.
"""

import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.faulty_reward.handling import HANDLINGS
from benchmarks.faulty_reward.world import ATTEMPTS, TENANT, Arm, Bench, Json
from benchmarks.report import report
from benchmarks.science.runs import sample, settings
from commands.run.run import run_pipeline, start_backends
from pipelines.execute.rundir import RunDir
from qinglan.llm.paid.journal_reader import read_report

SAMPLE_SEED = 100
RATES = (0.0, 0.01, 0.05, 0.20)
ARMS = (*(Arm("ours", rate) for rate in RATES), *(Arm("verl", rate) for rate in RATES[1:]))
KILLED_AFTER, CHECKPOINT_STEPS = 7, 3
KILLED = Arm("ours", 0.05)
SAME = 1e-6


def main(parts: Sequence[str], folder: Path) -> None:
    with opened(folder) as (bench, url):
        figures = {name: part(bench, url) for name, part in PARTS.items() if name in (parts or PARTS)}
    wrong = {name: entry["wrong"] for name, entry in figures.get("rewards", {}).items()}
    most = {side: max((wrong[name] for name in wrong if name.startswith(side)), default=0.0) for side in HANDLINGS}
    ratio = most["ours"] / (most["verl"] or 1.0)
    resumed = figures.get("resume", {})
    ok = ratio < 0.01 and all(resumed.get(name, True) for name in ("same_rollouts", "same_rewards", "paid_once"))
    report("faulty-reward", ratio, 0.0, ok, **figures)


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Bench, str]]:
    """The bench, and a gateway whose judge never fails; the SFT model is trained once."""
    config = settings(TENANT, sample(TENANT, SAMPLE_SEED, folder))
    run = RunDir(folder / "run")
    if not run.shown("sft_model").exists():
        run_pipeline(config, run.root, until="sft")
    with ExitStack() as services:
        alone = config.model_copy(update={"stand_ins": config.stand_ins.model_copy(update={"teacher": False})})
        bench = Bench(config, folder, start_backends(alone, run, services).rag.base_url)
        right = services.enter_context(bench.gateway(RunDir(folder / "right"), 0.0, ATTEMPTS))
        yield bench, right.gateway


def rewards(bench: Bench, url: str) -> Json:
    """Rewards of the same rollouts, by handling and rate."""
    rollouts = bench.rollouts()
    right = [
        terms["score"] for terms in bench.score(url, [(row["extra_info"]["id"], row["text"]) for row in rollouts])
    ]
    print(f"{len(right)} rollouts of the SFT model: mean reward {statistics.fmean(right):.3f}")
    out = {}
    for arm in ARMS:
        errors = [abs(reward - truth) for reward, truth in zip(bench.rewarded(arm, rollouts), right, strict=True)]
        out[f"{arm.handling} {arm.rate:.0%}"] = {"wrong": share_wrong(errors), "error": statistics.fmean(errors)}
        print(f"{arm.handling} at {arm.rate:.0%}: {share_wrong(errors):.1%} wrong, by {statistics.fmean(errors):.4f}")
    return out


def training(bench: Bench, url: str) -> Json:
    """The trained models on dev, and the rewards that their trainings got."""
    out = {"sft": held_out(bench, None, url)}
    print(f"SFT on dev: {out['sft']}")
    for arm in ARMS:
        bench.train(arm)
        errors = [error for step in bench.steps(arm) for error in errors_of(bench, step, url)]
        out[f"{arm.handling} {arm.rate:.0%}"] = {"wrong": share_wrong(errors), **held_out(bench, arm, url)}
        print(f"{arm.handling} at {arm.rate:.0%}, {len(errors):,} rollouts: {out[f'{arm.handling} {arm.rate:.0%}']}")
    return out


def errors_of(bench: Bench, step: Json, url: str) -> list[float]:
    right = bench.score(url, step["rollouts"])
    return [abs(reward - terms["score"]) for reward, terms in zip(step["rewards"], right, strict=True)]


def held_out(bench: Bench, arm: Arm | None, url: str) -> Json:
    terms = bench.score(url, bench.dev(arm))
    known = [entry["gold"] for entry in terms if entry["gold_known"]]
    return {"reward": statistics.fmean(entry["score"] for entry in terms), "gold": statistics.fmean(known)}


def resume(bench: Bench, url: str) -> Json:
    """Our training killed and called again, beside the same one that was left alone."""
    arm = KILLED._replace(suffix="-killed")
    bench.train(KILLED)
    lines = bench.folder(arm) / "model" / "rewards.jsonl"
    with bench.gateway(RunDir(bench.folder(arm)), arm.rate, ATTEMPTS) as servers:
        process = bench.start(arm, servers.gateway, checkpoint_steps=CHECKPOINT_STEPS)
        while process.poll() is None and (not lines.exists() or count(lines) < KILLED_AFTER):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed_after = count(lines)
        if code := bench.start(arm, servers.gateway, checkpoint_steps=CHECKPOINT_STEPS).wait():
            raise SystemExit(f"{arm.name} ended with {code}: see {bench.folder(arm) / 'training.log'}")
        billed = httpx.get(f"{servers.judge.removesuffix('/v1')}/stats", timeout=30).json()["billed_by_prompt"]
    alone, again = bench.steps(KILLED), bench.steps(arm)
    answered = [read_report(RunDir(bench.folder(training)).journal)["answered"] for training in (KILLED, arm)]
    out = {
        "killed_after": killed_after, "rewarded_steps": count(lines), "steps": len(again), "answered": answered,
        "same_rollouts": [step["rollouts"] for step in alone] == [step["rollouts"] for step in again],
        "same_rewards": [step["rewards"] for step in alone] == [step["rewards"] for step in again],
        "paid_once": answered[0] == answered[1] and max(billed.values()) == 1,
    }  # fmt: skip
    print(f"killed with SIGKILL and called again: {out}")
    return out


def share_wrong(errors: Sequence[float]) -> float:
    return sum(error > SAME for error in errors) / len(errors)


def count(path: Path) -> int:
    return len(path.read_bytes().splitlines())


PARTS: dict[str, Any] = {"rewards": rewards, "training": training, "resume": resume}

if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main(sys.argv[1:], Path("runs/bench-faulty-reward").resolve())
