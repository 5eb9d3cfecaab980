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
    """How systems are compared on the locked test."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """How every system's query retrieves: the run's."""

    as_asked: Fraction = AS_ASKED
    """A question whose own first passage scores at least this is searched as it was asked, and no student's rewrite
    counts for it. The RAG service does the same, whose `--as-asked` must be this number. Choose it on rows of dev; 0
    has every question rewritten."""

    batch: Positive = 64
    """Questions that a student rewrites at once."""

    engine: Literal["auto", "transformers", "vllm"] = "auto"
    """Engine that writes the students' rewrites. `auto`: vLLM on a GPU where this environment has it, as the model is
    served there; else transformers in this process."""

    vllm_options: tuple[str, ...] = ()
    """Further options of `vllm serve`, after those of the GPU runtime; a repeated one replaces the first, such as
    `--dtype=float32`."""

    serving_gpus: Positive = 1
    """GPUs of one replica of the runtime that serves the student, which is timed on as many; `deploy.runtime`'s
    `--tensor-parallel-size`."""

    examined_rows: Positive = 300
    """Rows whose rewrites the examiner scores, whole conversations drawn by seed: each costs a call a system."""

    judge_prompt: str = ""
    """The prompt that examiner and judge score by: as the reward's; empty takes qinglan/prompts."""

    agreement_rows: Positive = 60
    """Rows of these that the training's judge scores too, to see how far the two agree."""

    latency_rows: Positive = 50
    """Rows that a student rewrites one by one, to time it."""

    rewriter_urls: dict[Literal["sft", "rl"], Address] = {}
    """A student's server (V1 protocol), where it is timed; a student without one is served on this machine. Its host
    must be on the operator's allowlist."""

    gpu_hour_price: float = Field(default=2.0, gt=0)
    """Price of an hour of one GPU (on a CPU: of the machine), in the currency of the prices. A student's hour costs
    this times `serving_gpus`. It is set, not measured; at 0, cost would decide nothing."""

    slices: Path | None = None
    """JSONL with an id and yes-or-no properties of each question, for the report's table alone."""

    interesting: Fraction = 0.03
    """The smallest difference in top-1 worth proving, for the power table; the plan hopes for 88 % against 85 %."""

    draws: Positive = 10_000
    """Draws of the bootstrap and of the permutation test."""

    seed: Seed = 0
    """Seed of draws and samples."""

    examples: Positive = 6
    """Queries shown side by side for each of won, lost and still failing."""

    blind_rows: Positive = 50
    """Rows in the sheet that people score without knowing who wrote what."""

    stand_in_teacher: bool = False
    """The teacher was a stand-in, as the report then says; a run with `stand_ins.teacher` sets this itself."""

    gate: GateConfig = GateConfig()
    """When a candidate may serve."""

    @model_validator(mode="after")
    def _within_limits(self) -> Self:
        refuse_impossible(self, LIMITS)
        return self
