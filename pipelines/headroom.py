"""`qinglan headroom`: what a training by rewards could gain on a run's dev rows, and what each recipe costs.

The rows are those of the convert stage. With an SFT model its rewrites are sampled and the run's RAG service is
asked; without it the retrievals of validation stand in, and nothing is asked.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from components.evaluation.rewriter.score_systems import draw_rows, served_queries
from components.evaluation.rewriter.stage import read_slices
from pipelines.execution import run_lock, state_in_words
from pipelines.recorded_config import read_rewriter_config
from pipelines.rewriter import RunConfig
from pipelines.run import start_services
from pipelines.rundir import RunDir
from pipelines.step_display import duration_seconds
from qinglan.concurrency import map_in_order
from qinglan.errors import ConfigError, DataError
from qinglan.evaluation.headroom import (
    ALL,
    Decision,
    Headroom,
    RowOutcome,
    as_json,
    decide,
    estimate_as_json,
    measure_headroom,
)
from qinglan.evaluation.question_kinds import question_kinds, training_terms
from qinglan.evaluation.statistics import Estimate
from qinglan.files import read_jsonl
from qinglan.llm.journal_reader import read_report
from qinglan.prompts import Message
from qinglan.rag.client import RagClient
from qinglan.reward.episode import TrainingPrompt, refuse_other_service
from qinglan.reward.reward_function import read_prompt
from qinglan.rows import Retrieval, ValidatedRewrite

TRAININGS = {
    "sft": "learns the teacher's rewrites; its gain is over the teacher",
    "ppo": "strengthens what rewards prefer; its gain is that of the best sample over SFT",
}
PAID_STEPS = {"sft": "augment", "ppo": "reward"}
"""Steps of the journal whose answers a training alone needs."""

ROWS_UNDER_WAY = 32


class DevRow(NamedTuple):
    """A dev row with a passage that is known to be right."""

    validated: ValidatedRewrite
    prompt: TrainingPrompt
    messages: list[Message]
    kinds: Sequence[str]


class Recipe(NamedTuple):
    """A training with its gain on dev and its cost."""

    name: str
    about: str
    gain: Estimate | None
    """First-passage share over the recipe before it; None where nothing is known yet."""

    seconds: float | None
    cost: float | None
    basis: str
    """Source of the time: measured in this run, estimated by `fit`, or not known."""

    paid: float = 0.0
    """Cost of the models' answers that it took so far."""

    brought: float | None = None
    """Gain on dev that it came to; None before it has run."""

    @property
    def per_minute(self) -> float | None:
        return self.brought / self.seconds * 60 if self.brought is not None and self.seconds else None

    @property
    def per_unit_paid(self) -> float | None:
        """Gain for each unit of the currency."""
        return self.brought / self.paid if self.brought is not None and self.paid else None


class HeadroomReport(NamedTuple):
    """All that the command says."""

    run: str
    samples: int
    """Samples of each row; 0 where there is no SFT model yet."""

    labelled: int
    """Rows whose right passages judges labelled, in place of gold."""

    by_kind: Mapping[str, Headroom]
    decision: Decision
    worth: float
    currency: str
    recipes: Sequence[Recipe]

    def as_json(self) -> dict[str, Any]:
        recipes = [
            recipe._asdict()
            | {"gain": recipe.gain and estimate_as_json(recipe.gain)}
            | {"per_minute": recipe.per_minute, "per_unit_paid": recipe.per_unit_paid}
            for recipe in self.recipes
        ]
        return self._asdict() | {
            "by_kind": as_json(self.by_kind), "decision": self.decision._asdict(), "recipes": recipes
        }  # fmt: skip


def headroom_report(run: RunDir, samples: int, most_rows: int) -> HeadroomReport:
    """Measure the headroom of a run on its dev rows; whole conversations are drawn where there are more rows."""
    config = with_own_inputs(read_rewriter_config(run), run)
    rows = read_dev_rows(run, config)
    rows = [rows[at] for at in draw_rows([row.validated for row in rows], most_rows, config.evaluate.seed)]
    trained = run.shown("sft_model").exists()
    outcomes = sampled_outcomes(run, config, rows, samples) if trained else validated_outcomes(rows)
    by_kind = measure_headroom(outcomes, config.evaluate.draws, config.evaluate.seed)
    worth = config.evaluate.interesting
    return HeadroomReport(
        str(run.root), samples if trained else 0, sum(not row.prompt.gold for row in rows), by_kind,
        decide(by_kind[ALL], worth) if trained else NO_MODEL, worth, config.gateway.teacher.price.currency,
        list(recipes(run, config, by_kind[ALL] if trained else None)),
    )  # fmt: skip


def with_own_inputs(config: RunConfig, run: RunDir) -> RunConfig:
    """The inputs by the links in the run's folder: they hold where it was moved with its data."""
    links = {name: run.shown(name) for name in ("questions", "knowledge_base")}
    return config.model_copy(update={name: path for name, path in links.items() if path.exists()})


NO_MODEL = Decision(
    "not shown",
    "There is no SFT model yet, so nothing is sampled: the teacher stands in its place, and the best is that of "
    "teacher and plain question. Call `qinglan run ... --until sft`, then this again.",
)


def read_dev_rows(run: RunDir, config: RunConfig) -> list[DevRow]:
    """Dev rows with gold or a relevant label, as the convert stage wrote them."""
    import pyarrow.parquet

    path = run.shown("prompts") / "dev.parquet"
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such file. A run that ends before convert removes what an earlier run's convert wrote. "
            f"Call the `qinglan run` that made this folder again, with --out {run.root} --until convert: what was "
            "paid is not paid again.",
            *filter(None, [state_in_words(run)]),
        )
    slices = read_slices(config.evaluate.slices) if config.evaluate.slices else {}
    prompts = pyarrow.parquet.read_table(path).to_pylist()
    train = pyarrow.parquet.read_table(path.with_name("train.parquet"), columns=["extra_info"]).to_pylist()
    trained_terms = training_terms(row["extra_info"]["question"] for row in train)
    validated = validated_rows(run, {row["extra_info"]["id"] for row in prompts})
    rows = []
    for row in prompts:
        prompt = read_prompt(row["extra_info"], row["reward_model"]["ground_truth"], row["data_source"])
        if prompt.relevant:
            of_row = validated[prompt.id]
            kinds = (*question_kinds(of_row, trained_terms), *slices.get(prompt.id, ()))
            rows.append(DevRow(of_row, prompt, row["prompt"], kinds))
    if not rows:
        raise DataError(
            f"{path}: no row has gold or a relevant label. Bring gold passages, or let judges label rows: "
            "label.calls in the profile is their number of calls, and 0 labels nothing."
        )
    return rows


def validated_rows(run: RunDir, ids: Collection[str]) -> dict[str, ValidatedRewrite]:
    """Rows of the validate stage by id; all of these must be among them."""
    path = run.shown("validated")
    rows = {row.id: row for _, row in read_jsonl(path, ValidatedRewrite) if row.id in ids}
    if missing := sorted(set(ids) - set(rows)):
        raise DataError(f"{path}: lacks row {missing[0]!r} of the dev prompts. Run the convert stage again.")
    return rows


def validated_outcomes(rows: Sequence[DevRow]) -> list[RowOutcome]:
    """Outcomes by validation's retrievals: the teacher's rewrite in the model's place, beside the plain question."""
    outcomes = []
    for row in rows:
        teacher, plain = (
            first_is_right(row.prompt, retrieval)
            for retrieval in (row.prompt.teacher_retrieval, row.prompt.plain_retrieval)
        )
        outcomes.append(_outcome(row, teacher, teacher, [teacher, plain]))
    return outcomes


def sampled_outcomes(run: RunDir, config: RunConfig, rows: Sequence[DevRow], samples: int) -> list[RowOutcome]:
    """Greedy and sampled rewrites of the run's SFT model, asked of the run's RAG service as the evaluation would."""
    from components.evaluation.rewriter.sample_rewrites import sample_rewrites

    prompts = [row.messages for row in rows]
    written = sample_rewrites(run.shown("sft_model"), prompts, samples, config.evaluate.seed, config.evaluate)
    columns = [written.greedy, *map(list, zip(*written.samples, strict=True))]
    served = [served_queries([row.validated for row in rows], column, config.evaluate.as_asked) for column in columns]
    texts = list(zip(*served, strict=True))
    with run_lock(run), ExitStack() as services:
        url = start_services(config, run, ("ppo",), services)
        firsts = asyncio.run(first_passages([row.prompt for row in rows], texts, config, url))
    return [
        _outcome(row, first_is_right(row.prompt, row.prompt.teacher_retrieval), greedy, rest)
        for row, (greedy, *rest) in zip(rows, firsts, strict=True)
    ]


def _outcome(row: DevRow, teacher: float, greedy: float, samples: Sequence[float]) -> RowOutcome:
    return RowOutcome((row.validated.tenant_id, row.validated.conversation_id), row.kinds, teacher, greedy, samples)


def first_is_right(prompt: TrainingPrompt, retrieval: Retrieval) -> float:
    """1 where validation's first passage is right."""
    return float(bool(retrieval.hits) and retrieval.hits[0].id in prompt.relevant)


async def first_passages(
    prompts: Sequence[TrainingPrompt], texts: Sequence[Sequence[str]], config: RunConfig, gateway_url: str
) -> list[list[float]]:
    """Search for each text of each prompt: 1 where its first passage is right; the same text is searched once."""
    async with RagClient.of_gateway(gateway_url) as rag:

        async def ask(at: int) -> list[float]:
            firsts = {text: await _ask(rag, prompts[at], text, config) for text in dict.fromkeys(texts[at])}
            return [firsts[text] for text in texts[at]]

        return [row async for row in map_in_order(range(len(prompts)), ask, ROWS_UNDER_WAY)]


async def _ask(rag: RagClient, prompt: TrainingPrompt, text: str, config: RunConfig) -> float:
    if not text.strip():
        return 0.0
    request = config.retrieval.request(prompt.question, text, prompt.need, prompt.tenant_id)
    data = (await rag.retrieve(request)).data
    refuse_other_service(prompt, data)
    hits = config.retrieval.shown(data)
    return float(bool(hits) and hits[0].id in prompt.relevant)


def recipes(run: RunDir, config: RunConfig, headroom: Headroom | None) -> Iterator[Recipe]:
    """SFT and PPO with their gain on dev, and the time and price that were measured or are estimated."""
    estimated, paid = estimates(config, run), paid_by_step(run)
    gains = {"sft": headroom.learned, "ppo": headroom.gain} if headroom else {}
    for stage, about in TRAININGS.items():
        seconds, cost, basis = measured_cost(run, stage) or estimated.get(stage, (None, None, "not known"))
        brought = realised_gain(run) if stage == "ppo" else headroom and headroom.learned.value
        yield Recipe(stage, about, gains.get(stage), seconds, cost, basis, paid[PAID_STEPS[stage]], brought)


def paid_by_step(run: RunDir) -> Mapping[str, float]:
    """Cost of the answers so far, by step of the journal."""
    paid: Counter[str] = Counter()
    if run.journal.exists():
        for entry in read_report(run.journal)["by_step"]:
            paid[entry["step"]] += entry["cost"]
    return paid


def realised_gain(run: RunDir) -> float | None:
    """PPO's own measurement: share of dev prompts with a right passage first, handed-on model minus SFT model."""
    if not (record := _done_record(run, "ppo")):
        return None
    return float(record["facts"]["dev_after"] - record["facts"]["dev_before"])


Cost = tuple[float | None, float | None, str]


def measured_cost(run: RunDir, stage: str) -> Cost | None:
    """Seconds of a stage that this run has done; its price is not worked out, since the machine may be anyone's."""
    record = _done_record(run, stage)
    return (duration_seconds(record), None, "measured") if record else None


def _done_record(run: RunDir, stage: str) -> dict[str, Any] | None:
    record = run.step_record(stage)
    return record if record and record.get("status") == "done" else None


def estimates(config: RunConfig, run: RunDir) -> dict[str, Cost]:
    """Seconds and price of the trainings by `fit`, where it knows the models and the cards."""
    import pyarrow.parquet

    from pipelines.sizing.check import planned_fit_report
    from pipelines.sizing.report import Workload

    train = run.shown("prompts") / "train.parquet"
    report = planned_fit_report(config, config.training, Workload(pyarrow.parquet.read_metadata(train).num_rows))
    return {
        pace.stage: (pace.hours * 3600, pace.cost, "estimated")
        for pace in (report.paces if report else ())
        if pace.hours is not None
    }
