"""Settings of the rewriter's evaluation."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.evaluation.gates.gate_limits import refuse_impossible
from qinglan.evaluation.gates.rewriter_gate import LIMITS, GateConfig
from qinglan.http.addresses import Address
from qinglan.rag.as_asked import AS_ASKED
from qinglan.rag.retrieval import RetrievalConfig


class EvaluateConfig(Config):
    """Comparison of all systems on the locked test."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Retrieval of every system's query: the run's."""

    as_asked: Fraction = AS_ASKED
    """Score of a question's own first passage from which the question is searched as it was asked, and no student's
    rewrite counts for it. `--as-asked` of the RAG service must be the same number. Choose it on rows of dev; with 0
    every question is rewritten."""

    batch: Positive = 64
    """Questions per batch of a student."""

    engine: Literal["auto", "transformers", "vllm"] = "auto"
    """Engine of the students' rewrites. `auto`: vLLM on a GPU if this environment has it, as the model is served
    there; else transformers in this process."""

    vllm_options: tuple[str, ...] = ()
    """Further options of `vllm serve`, after those of the GPU runtime; a repeated one replaces the first, such as
    `--dtype=float32`."""

    serving_gpus: Positive = 1
    """GPUs of one replica of the runtime that serves the student (`--tensor-parallel-size` of `deploy.runtime`); the
    student is timed on the same number."""

    examined_rows: Positive = 300
    """Rows whose rewrites the examiner scores, whole conversations drawn by seed: each costs a call per system."""

    judge_prompt: str = ""
    """Prompt of examiner and judge, as the reward's; empty takes qinglan/prompts."""

    agreement_rows: Positive = 60
    """Rows of these that the training's judge scores too, to measure the agreement of both."""

    latency_rows: Positive = 50
    """Rows that each student rewrites one by one, to time it."""

    rewriter_urls: dict[Literal["sft", "rl"], Address] = {}
    """Address of the server (V1 protocol) on which a student is timed; without one it is served on this machine. The
    host must be on the operator's allowlist."""

    gpu_hour_price: float = Field(default=2.0, gt=0)
    """Price of an hour of one GPU (on a CPU: of the machine), in the currency of the prices. A student's hour costs
    this times `serving_gpus`. It is set, not measured; with 0, cost would decide nothing."""

    slices: Path | None = None
    """JSONL with an id and yes-or-no properties of each question, for a table of the report."""

    interesting: Fraction = 0.03
    """Smallest difference in top-1 worth proving, for the power analysis; the plan expects 88 % against 85 %."""

    draws: Positive = 10_000
    """Draws of the bootstrap and of the permutation test."""

    seed: Seed = 0
    """Seed of draws and samples."""

    examples: Positive = 6
    """Queries on the page for each of won, lost and still failing."""

    blind_rows: Positive = 50
    """Rows in the sheet that people score blind."""

    stand_in_teacher: bool = False
    """Mark of a teacher that was a stand-in, for the report; a run with `stand_ins.teacher` sets it itself."""

    gate: GateConfig = GateConfig()
    """Conditions of a promotion."""

    @model_validator(mode="after")
    def _within_limits(self) -> Self:
        refuse_impossible(self, LIMITS)
        return self
