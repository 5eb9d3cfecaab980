"""One sample tenant, a judge that fails as often as it is told to, and trainings before it."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.faulty_reward.handling import HANDLINGS
from benchmarks.ppo.rloo import Job
from commands.run.run import knowledge_base_options, start_gateway
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import RunConfig
from qinglan.llm.config import GatewayConfig, Limits
from qinglan.processes.services import run_service
from qinglan.reward.reward_function import read_prompt
from qinglan.reward.scorer import Scorer
from qinglan.rewriter.model import Student
from standins.samples.tenant_content import content_file

TENANT = "fivedoctors"
STEPS, COLLECTION, BATCH, LEARNING_RATE = 12, 128, 32, 1e-3
DEV_ROWS, TOGETHER = 256, 64
PROMPTS, GENERATIONS = 128, 4
ATTEMPTS = Limits().attempts
EVERY_ROLLOUT_JUDGED = {"judge_share": 1.0, "control_pair_share": 0.0}

Json = dict[str, Any]


class Arm(NamedTuple):
    """One training: how failures are handled, and how many calls fail."""

    handling: str
    rate: float
    seed: int = 0
    suffix: str = ""

    @property
    def attempts(self) -> int:
        """Tries of one call: a run's own number, and one where the reward function asks by itself."""
        return ATTEMPTS if self.handling == "ours" else 1

    @property
    def name(self) -> str:
        return f"{self.handling}-{self.rate:g}-{self.seed}{self.suffix}"


class Servers(NamedTuple):
    """URLs of one arm's gateway, and of the judge behind it."""

    gateway: str
    judge: str


class Bench:
    """The sample, the servers and the settings that all arms share."""

    def __init__(self, config: RunConfig, folder: Path, rag_url: str) -> None:
        self._config, self._folder, self._rag_url = config, folder, rag_url
        self._reward = config.ppo.reward.model_copy(update=EVERY_ROLLOUT_JUDGED)
        self.files = folder / "run" / "files"
        self.rows: dict[str, Json] = {
            row["extra_info"]["id"]: row
            for name in ("train", "dev")
            for row in read_rows(self.files / "ppo" / f"{name}.parquet")
        }

    def folder(self, arm: Arm) -> Path:
        return self._folder / "arms" / arm.name

    @contextmanager
    def gateway(self, run: RunDir, rate: float, attempts: int) -> Iterator[Servers]:
        """A gateway with a journal of its own before a judge that fails at this rate."""
        run.root.mkdir(parents=True, exist_ok=True)
        with ExitStack() as services:
            arguments = [*knowledge_base_options(self._config), "--vocabulary", f"{TENANT}={content_file(TENANT)}"]
            arguments += ["--error-rate", str(rate), "--port", "0"]
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

    def reward_settings(self, folder: Path, url: str) -> Path:
        """The reward's settings, as verl's workers get them."""
        path = folder / "reward.json"
        values = {
            "gateway_url": url,
            "config": self._reward.model_dump(mode="json"),
            "folder": str(folder / "rollouts"),
        }
        path.write_bytes(orjson.dumps(values))
        return path

    def start(self, arm: Arm, url: str, **changes: Any) -> "subprocess.Popen[bytes]":
        """The training as a process of its own."""
        here = self.folder(arm)
        written = here / "job.json"
        job = Job(
            model=str(self.files / "sft_model"), prompts=str(self.files / "ppo" / "train.parquet"),
            reward=str(self.reward_settings(here, url)), out=str(here / "model"), steps=STEPS,
            collection=COLLECTION, batch=BATCH, learning_rate=LEARNING_RATE, kl=0.0, seed=arm.seed,
            max_new_tokens=self._config.ppo.max_new_tokens, handling=arm.handling,
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
        with self.gateway(RunDir(self.folder(arm)), arm.rate, arm.attempts) as servers:
            if code := self.start(arm, servers.gateway).wait():
                raise SystemExit(f"{arm.name} ended with {code}: see {self.folder(arm) / 'training.log'}")

    def steps(self, arm: Arm) -> list[Json]:
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

    def rollouts(self) -> list[Json]:
        """Sampled rewrites of the SFT model, some of each prompt, as a training would get them."""
        import numpy as np

        from qinglan.rewriter.decoding import Sampling, decode

        student = Student.load(self.files / "sft_model")
        tokenizer, most = student.tokenizer, self._config.ppo.max_new_tokens
        rows = [row for row in read_rows(self.files / "ppo" / "train.parquet")[:PROMPTS] for _ in range(GENERATIONS)]
        prompts = tokenizer.apply_chat_template(
            [row["prompt"] for row in rows], add_generation_prompt=True, enable_thinking=False, return_dict=False
        )
        draws = np.random.default_rng(0).random((len(rows), most))
        written = decode(
            student.model, prompts, most, tokenizer.eos_token_id, tokenizer.pad_token_id, Sampling(1.0), draws
        )
        return [
            {**row, "ids": rewrite.ids, "text": tokenizer.decode(rewrite.ids, skip_special_tokens=True)}
            for row, rewrite in zip(rows, written, strict=True)
        ]

    def rewarded(self, arm: Arm, rollouts: Sequence[Json]) -> list[float]:
        """The rewards that a training would get for these rollouts; worked out once."""
        run = RunDir(self._folder / "rewarded" / arm.name)
        path = run.root / "rewards.json"
        if path.exists():
            return list(orjson.loads(path.read_bytes()))
        with self.gateway(run, arm.rate, arm.attempts) as servers:
            settings = str(self.reward_settings(run.root, servers.gateway))
            tokenizer = Student.load(self.files / "sft_model").tokenizer
            rewards = asyncio.run(HANDLINGS[arm.handling](rollouts, settings, tokenizer))
        path.write_bytes(orjson.dumps(rewards))
        return rewards

    def dev(self, arm: Arm | None) -> list[tuple[str, str]]:
        """Greedy rewrites of dev rows by the arm's model; by the SFT model without one."""
        model = self.files / "sft_model"
        if arm is not None:
            model = self.folder(arm) / "model"
            (model / "rewriter.json").write_bytes((self.files / "sft_model" / "rewriter.json").read_bytes())
        student = Student.load(model)
        rows = read_rows(self.files / "ppo" / "dev.parquet")[:DEV_ROWS]
        texts: list[str] = []
        for start in range(0, len(rows), TOGETHER):
            prompts = [row["prompt"] for row in rows[start : start + TOGETHER]]
            texts += [rewrite.text for rewrite in student.write_messages(prompts)]
        return [(row["extra_info"]["id"], text) for row, text in zip(rows, texts, strict=True)]


def read_rows(path: Path) -> list[Json]:
    import pyarrow.parquet

    rows: list[Json] = pyarrow.parquet.read_table(path).to_pylist()
    return rows
