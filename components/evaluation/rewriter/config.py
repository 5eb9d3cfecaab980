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
    """Retrieval settings for every system's query, the same as in the rest of the run."""

    as_asked: Fraction = AS_ASKED
    """Lowest score of the first passage that a plain question finds, at which the question is searched without a
    rewrite. 0 rewrites every question. The value must equal `--as-asked` of the RAG service; choose it on dev
    rows."""

    batch: Positive = 64
    """Number of questions that a student rewrites at once."""

    engine: Literal["auto", "transformers", "vllm"] = "auto"
    """Engine that runs the students. `auto` uses vLLM, which also serves the model, if there is a GPU and vLLM is
    installed; else transformers in this process."""

    vllm_options: tuple[str, ...] = ()
    """Further options of `vllm serve`, such as `--dtype=float32`, added after those of the GPU runtime. A repeated
    option replaces the earlier one."""

    serving_gpus: Positive = 1
    """Number of GPUs that one replica of the student's runtime uses (`--tensor-parallel-size` of `deploy.runtime`).
    The student is timed on the same number."""

    examined_rows: Positive = 300
    """Number of rows that the examiner scores, drawn as whole conversations. A row costs up to one call per
    system."""

    judge_prompt: str = ""
    """Prompt of examiner and judge, as in `reward.judge_prompt`; if empty, the prompt in qinglan/prompts is used."""

    agreement_rows: Positive = 60
    """Number of examined rows that the training's judge scores too, to measure how far judge and examiner agree."""

    latency_rows: Positive = 50
    """Number of rows that each student rewrites one at a time, to measure its latency."""

    rewriter_urls: dict[Literal["sft", "rl"], Address] = {}
    """Addresses of servers (V1 protocol) on which the students are timed, by student. A student without an address is
    served on this machine. The hosts must be on the operator's allowlist."""

    gpu_hour_price: float = Field(default=2.0, gt=0)
    """Price of one GPU for an hour (on a CPU: of the machine), in the currency of the teacher's price. An hour of a
    student costs this times `serving_gpus`. 0 is refused, since the gate's limit on cost would then decide
    nothing."""

    slices: Path | None = None
    """Path of a JSONL file with each question's id and true-or-false properties; the report shows top-1 by
    property."""

    interesting: Fraction = 0.03
    """Smallest gain in top-1, as a share, that is worth proving; the power analysis computes the queries needed to
    show it. The plan expects 88 % against 85 %."""

    draws: Positive = 10_000
    """Number of draws of the bootstrap and of the permutation test."""

    seed: Seed = 0
    """Seed of the draws and of the sampled rows."""

    examples: Positive = 6
    """Number of example queries in the report for each case: the candidate wins against the teacher, loses, or both
    fail."""

    blind_rows: Positive = 50
    """Number of rows in the sheet that people score without knowing the systems."""

    stand_in_teacher: bool = False
    """Mark in the report that the teacher was a stand-in; a run with `stand_ins.teacher` sets it itself."""

    gate: GateConfig = GateConfig()
    """Conditions that the candidate must meet to be promoted."""

    @model_validator(mode="after")
    def _within_limits(self) -> Self:
        refuse_impossible(self, LIMITS)
        return self
