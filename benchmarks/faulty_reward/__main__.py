"""python -m benchmarks.faulty_reward: 0, 1, 5 and 20 % of the judge's calls fail; ours beside verl's manager.

Both train the same SFT model by TRL's RLOO on the same prompts with the same reward formula, every rollout judged.
The stand-in judge gives 429, 500, HTML, broken JSON or nothing at the given rate. Ours asks through the run's
gateway, which tries again; verl's `rate_limited` manager has a reward function that asks once, and makes its
exception a 0.

Counted: rewards that differ from those of a judge that never fails, and what the trained model finds on dev. Then our
training is killed with SIGKILL and called again: the same rollouts and rewards, and no answer paid twice.
"""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson

from benchmarks.ppo.rloo import Job
from benchmarks.report import report
from benchmarks.science.runs import sample, settings
from pipelines.rewriter import RunConfig
from pipelines.run import knowledge_base_options, run_pipeline, start_backends, start_gateway
from pipelines.rundir import RunDir
from qinglan.llm.config import GatewayConfig, Limits
from qinglan.llm.journal_reader import read_report
from qinglan.reward.reward_function import read_prompt
from qinglan.reward.scorer import Scorer
from qinglan.rewriter.model import Student
from qinglan.services import run_service
from standins.samples.tenant_content import content_file

TENANT, SAMPLE_SEED = "fivedoctors", 100
RATES = (0.0, 0.01, 0.05, 0.20)
STEPS, COLLECTION, BATCH, LEARNING_RATE = 12, 128, 32, 1e-3
DEV_ROWS, TOGETHER = 256, 64
ATTEMPTS = Limits().attempts
KILLED_RATE, KILLED_AFTER, CHECKPOINT_STEPS = 0.05, 7, 3
EVERY_ROLLOUT_JUDGED = {"judge_share": 1.0, "canary_share": 0.0}
SAME = 1e-6

Json = dict[str, Any]


class Arm(NamedTuple):
    """One training: how failures are handled, and how many calls fail."""

    handling: str
    rate: float
    seed: int = 0
    suffix: str = ""

    @property
    def name(self) -> str:
        return f"{self.handling}-{self.rate:g}-{self.seed}{self.suffix}"


class Servers(NamedTuple):
    """URLs of one arm's gateway, and of the judge behind it."""

    gateway: str
    judge: str


class Bench:
    """Everything that the arms share."""

    def __init__(self, config: RunConfig, folder: Path, rag_url: str) -> None:
        self._config, self._folder, self._rag_url = config, folder, rag_url
        self._reward = config.ppo.reward.model_copy(update=EVERY_ROLLOUT_JUDGED)
        self.files = folder / "run" / "files"
        self.rows: dict[str, Json] = {
            row["extra_info"]["id"]: row
            for name in ("train", "dev")
            for row in _rows(self.files / "ppo" / f"{name}.parquet")
        }

    def folder(self, arm: Arm) -> Path:
        return self._folder / "arms" / arm.name

    @contextmanager
    def gateway(self, run: RunDir, rate: float, attempts: int) -> Iterator[Servers]:
        """A gateway with a journal of its own before a judge that fails at this rate."""
        run.root.mkdir(parents=True, exist_ok=True)
        with ExitStack() as services:
            arguments = [*knowledge_base_options(self._config), "--vocabulary", f"{TENANT}={content_file(TENANT)}"]
            arguments += ["--error-rate", str(rate), "--silence", "0", "--port", "0"]
            teacher = services.enter_context(run_service("standins.teacher", arguments, run.logs / "teacher.log"))
            yield Servers(start_gateway(self._gateway_config(teacher, attempts), run, services), teacher)

    def _gateway_config(self, teacher: str, attempts: int) -> GatewayConfig:
        gateway = self._config.gateway
        roles = {
            name: getattr(gateway, name).model_copy(update={"base_url": teacher}) for name in ("teacher", "judge")
        }
        limits = gateway.limits.model_copy(update={"attempts": attempts, "concurrency": 32, "outage_after": 1000})
        if attempts > 1:
            limits = limits.model_copy(update={"outage_after": gateway.limits.outage_after})
        rag = gateway.rag.model_copy(update={"base_url": self._rag_url})
        return gateway.model_copy(update={**roles, "examiner": None, "limits": limits, "rag": rag})

    def start(self, arm: Arm, url: str, **changes: Any) -> "subprocess.Popen[bytes]":
        """The training as a process of its own."""
        here = self.folder(arm)
        reward, written = here / "reward.json", here / "job.json"
        reward.write_bytes(
            orjson.dumps(
                {"gateway_url": url, "config": self._reward.model_dump(mode="json"), "folder": str(here / "rollouts")}
            )
        )
        job = Job(
            model=str(self.files / "sft_model"), prompts=str(self.files / "ppo" / "train.parquet"),
            reward=str(reward), out=str(here / "model"), steps=STEPS, collection=COLLECTION, batch=BATCH,
            learning_rate=LEARNING_RATE, kl=0.0, max_new_tokens=self._config.ppo.max_new_tokens, seed=arm.seed,
            handling=arm.handling,
        )._replace(**changes)  # fmt: skip
        written.write_bytes(orjson.dumps(job._asdict()))
        with (here / "training.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.ppo.rloo", str(written)], stdout=log, stderr=log
            )

    def train(self, arm: Arm) -> None:
        """The arm's training, once; ours as a run is set up, verl's with one attempt a call."""
        if (self.folder(arm) / "model" / "model.safetensors").exists():
            return
        attempts = ATTEMPTS if arm.handling == "ours" else 1
        with self.gateway(RunDir(self.folder(arm)), arm.rate, attempts) as servers:
            if code := self.start(arm, servers.gateway).wait():
                raise SystemExit(f"{arm.name} ended with {code}: see {self.folder(arm) / 'training.log'}")

    def rewards(self, arm: Arm) -> list[Json]:
        """The rollouts and rewards of each step; of a step that was done again, the last."""
        lines = map(orjson.loads, (self.folder(arm) / "model" / "rewards.jsonl").read_bytes().splitlines())
        return list({line["step"]: line for line in lines}.values())

    def score(self, url: str, rollouts: Sequence[tuple[str, str]]) -> list[dict[str, float]]:
        """The terms of these rewrites by a judge that never fails."""
        return asyncio.run(self._score(url, rollouts))

    async def _score(self, url: str, rollouts: Sequence[tuple[str, str]]) -> list[dict[str, float]]:
        pairs = []
        for name, text in rollouts:
            row = self.rows[name]
            prompt = read_prompt(row["extra_info"], row["reward_model"]["ground_truth"], row["data_source"])
            pairs.append((prompt, text))
        async with Scorer(url, self._reward) as scorer:
            return await scorer.score_all(pairs)

    def dev(self, arm: Arm | None) -> list[tuple[str, str]]:
        """Greedy rewrites of dev rows by the arm's model; by the SFT model without one."""
        model = self.files / "sft_model"
        if arm is not None:
            model = self.folder(arm) / "model"
            (model / "rewriter.json").write_bytes((self.files / "sft_model" / "rewriter.json").read_bytes())
        student = Student.load(model)
        rows = _rows(self.files / "ppo" / "dev.parquet")[:DEV_ROWS]
        texts: list[str] = []
        for start in range(0, len(rows), TOGETHER):
            prompts = [row["prompt"] for row in rows[start : start + TOGETHER]]
            texts += [rewrite.text for rewrite in student.write_messages(prompts)]
        return [(row["extra_info"]["id"], text) for row, text in zip(rows, texts, strict=True)]


def measure(bench: Bench, arm: Arm, url: str) -> Json:
    """What one training saw and came to."""
    steps = bench.rewards(arm)
    wrong: list[float] = []
    for step in steps:
        right = bench.score(url, step["rollouts"])
        wrong += [abs(given - terms["score"]) for given, terms in zip(step["rewards"], right, strict=True)]
    journal = read_report(RunDir(bench.folder(arm)).journal)
    return {
        "rollouts": len(wrong), "wrong": sum(error > SAME for error in wrong) / len(wrong),
        "error": statistics.fmean(wrong), "sent": journal["sent"], "answered": journal["answered"],
        **held_out(bench, arm, url),
    }  # fmt: skip


def held_out(bench: Bench, arm: Arm | None, url: str) -> Json:
    terms = bench.score(url, bench.dev(arm))
    known = [entry["gold"] for entry in terms if entry["gold_known"]]
    return {"reward": statistics.fmean(entry["score"] for entry in terms), "gold": statistics.fmean(known)}


def killed_and_resumed(bench: Bench, whole: Arm) -> Json:
    """Our training again, killed with SIGKILL and called again; `whole` is the one that was left alone."""
    arm = whole._replace(suffix="-killed")
    rewards = bench.folder(arm) / "model" / "rewards.jsonl"
    with bench.gateway(RunDir(bench.folder(arm)), arm.rate, ATTEMPTS) as servers:
        training = bench.start(arm, servers.gateway, checkpoint_steps=CHECKPOINT_STEPS)
        while training.poll() is None and (not rewards.exists() or _lines(rewards) < KILLED_AFTER):
            time.sleep(0.05)
        training.send_signal(signal.SIGKILL)
        training.wait()
        before = _lines(rewards)
        if code := bench.start(arm, servers.gateway, checkpoint_steps=CHECKPOINT_STEPS).wait():
            raise SystemExit(f"{arm.name} ended with {code}: see {bench.folder(arm) / 'training.log'}")
        billed = httpx.get(f"{servers.judge}/stats", timeout=30).json()["billed_by_prompt"]
    journal = read_report(RunDir(bench.folder(arm)).journal)
    alone = read_report(RunDir(bench.folder(whole)).journal)
    return {
        "killed_after": before, "steps": _lines(rewards),
        "same_rollouts": _column(bench.rewards(arm), "rollouts") == _column(bench.rewards(whole), "rollouts"),
        "same_rewards": _column(bench.rewards(arm), "rewards") == _column(bench.rewards(whole), "rewards"),
        "answered": journal["answered"], "answered_alone": alone["answered"],
        "billed_twice": sum(times > 1 for times in billed.values()),
    }  # fmt: skip


def _column(steps: list[Json], name: str) -> list[Any]:
    return [step[name] for step in steps]


def _lines(path: Path) -> int:
    return len(path.read_bytes().splitlines())


def _rows(path: Path) -> list[Json]:
    import pyarrow.parquet

    rows: list[Json] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


def main(folder: Path, seeds: int) -> None:
    config = settings(TENANT, sample(TENANT, SAMPLE_SEED, folder))
    run = RunDir(folder / "run")
    if not run.shown("sft_model").exists():
        run_pipeline(config, run.root, until="sft")
    with ExitStack() as services:
        alone = config.model_copy(update={"stand_ins": config.stand_ins.model_copy(update={"teacher": False})})
        bench = Bench(config, folder, start_backends(alone, run, services).rag.base_url)
        arms = [Arm("ours", rate, seed) for seed in range(seeds) for rate in RATES]
        arms += [Arm("verl", rate, seed) for seed in range(seeds) for rate in RATES[1:]]
        for arm in arms:
            bench.train(arm)
        with bench.gateway(RunDir(folder / "right"), 0.0, ATTEMPTS) as servers:
            before = held_out(bench, None, servers.gateway)
            figures = {arm: measure(bench, arm, servers.gateway) for arm in arms}
        resumed = killed_and_resumed(bench, Arm("ours", KILLED_RATE))
    print_table(before, figures)
    print(f"killed with SIGKILL and called again: {resumed}")
    means = {(arm.handling, arm.rate): means_of(figures, arm.handling, arm.rate) for arm in arms}
    worst = RATES[-1]
    ok = all(values["wrong"] == 0 for (handling, _), values in means.items() if handling == "ours")
    report(
        "faulty-reward", means["verl", worst]["gold"] / means["ours", worst]["gold"], 1.0,
        ok and resumed["same_rollouts"] and resumed["same_rewards"] and not resumed["billed_twice"],
        seeds=seeds, sft=before, arms={f"{handling} {rate:.0%}": means[handling, rate] for handling, rate in means},
        resumed=resumed,
    )  # fmt: skip


def means_of(figures: dict[Arm, Json], handling: str, rate: float) -> Json:
    chosen = [values for arm, values in figures.items() if (arm.handling, arm.rate) == (handling, rate)]
    return {name: round(statistics.fmean(values[name] for values in chosen), 4) for name in chosen[0]}


def print_table(before: Json, figures: dict[Arm, Json]) -> None:
    print(f"SFT on dev: reward {before['reward']:.3f}, gold first {before['gold']:.3f}")
    for arm, values in figures.items():
        print(
            f"{arm.handling} at {arm.rate:.0%}, seed {arm.seed}: {values['wrong']:.1%} of {values['rollouts']:,} "
            f"rewards wrong, by {values['error']:.4f} on average; dev reward {values['reward']:.3f}, gold first "
            f"{values['gold']:.3f}; {values['sent']:,} calls sent, {values['answered']:,} answered"
        )


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main(Path("runs/bench-faulty-reward").resolve(), int(sys.argv[1]) if len(sys.argv) > 1 else 1)
