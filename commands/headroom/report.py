"""`qinglan headroom`: measure what PPO could gain on a run's dev rows, and what each training recipe costs.

The rows come from the convert stage. If the run has an SFT model, its rewrites are sampled and sent to the run's RAG
service. Otherwise the retrievals of the validate stage are used, and no service is called.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from commands.run.gains import Recipe, recipes
from commands.run.run import start_services
from components.evaluation.rewriter.score_systems import draw_rows, served_queries
from components.evaluation.rewriter.stage import read_slices
from pipelines.execute.execution import is_locked, run_lock, state_in_words
from pipelines.execute.recorded_config import read_rewriter_config
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import ConfigError, DataError
from qinglan.evaluation.first_passages import first_passages
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
from qinglan.files.files import read_jsonl
from qinglan.prompts import Message
from qinglan.reward.episode import TrainingPrompt
from qinglan.reward.reward_function import read_prompt
from qinglan.rows.rows import Retrieval, ValidatedRewrite


class DevRow(NamedTuple):
    """A dev row with a passage that is known to be right."""

    validated: ValidatedRewrite
    prompt: TrainingPrompt
    messages: list[Message]
    kinds: Sequence[str]


class HeadroomReport(NamedTuple):
    """The result of `qinglan headroom`."""

    run: str
    samples: int
    """Number of samples for each row; 0 if there is no SFT model yet."""

    labelled: int
    """Number of rows without gold, whose right passages come from judges' labels."""

    by_kind: Mapping[str, Headroom]
    decision: Decision
    worth: float
    currency: str
    recipes: Sequence[Recipe]

    def as_json(self) -> dict[str, Any]:
        recipes = [
            recipe._asdict() | {"gain": recipe.gain and estimate_as_json(recipe.gain)} for recipe in self.recipes
        ]
        return self._asdict() | {
            "by_kind": as_json(self.by_kind), "decision": self.decision._asdict(), "recipes": recipes
        }  # fmt: skip


def headroom_report(run: RunDir, samples: int, most_rows: int) -> HeadroomReport:
    """Measure the headroom of a run on its dev rows. If there are more than `most_rows`, whole conversations are
    drawn."""
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
    """Replace the input paths by the links in the run's folder, which still work if the folder was moved together
    with its data."""
    links = {name: run.shown(name) for name in ("questions", "knowledge_base")}
    return config.model_copy(update={name: path for name, path in links.items() if path.exists()})


NO_MODEL = Decision(
    "not shown",
    "There is no SFT model yet, so nothing is sampled: the teacher stands in its place, and the best is that of "
    "teacher and plain question. Call `qinglan run ... --until sft`, then this again.",
)


def read_dev_rows(run: RunDir, config: RunConfig) -> list[DevRow]:
    """Read the dev rows with gold or a relevant label, as the convert stage wrote them."""
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
    """Read the validate stage's rows with these ids; DataError if one is missing."""
    path = run.shown("validated")
    rows = {row.id: row for _, row in read_jsonl(path, ValidatedRewrite) if row.id in ids}
    if missing := sorted(set(ids) - set(rows)):
        raise DataError(f"{path}: lacks row {missing[0]!r} of the dev prompts. Run the convert stage again.")
    return rows


def validated_outcomes(rows: Sequence[DevRow]) -> list[RowOutcome]:
    """Take the outcomes from the retrievals of the validate stage. The teacher's rewrite stands for the model's, and
    the two samples are the teacher's rewrite and the plain question."""
    outcomes = []
    for row in rows:
        teacher, plain = (
            first_is_right(row.prompt, retrieval)
            for retrieval in (row.prompt.teacher_retrieval, row.prompt.plain_retrieval)
        )
        outcomes.append(_outcome(row, teacher, teacher, [teacher, plain]))
    return outcomes


def sampled_outcomes(run: RunDir, config: RunConfig, rows: Sequence[DevRow], samples: int) -> list[RowOutcome]:
    """Measure the outcomes of greedy and sampled rewrites by the run's SFT model, sent to the run's RAG service as
    the evaluation would send them."""
    from components.evaluation.rewriter.sample_rewrites import sample_rewrites

    prompts = [row.messages for row in rows]
    written = sample_rewrites(run.shown("sft_model"), prompts, samples, config.evaluate.seed, config.evaluate)
    columns = [written.greedy, *map(list, zip(*written.samples, strict=True))]
    served = [served_queries([row.validated for row in rows], column, config.evaluate.as_asked) for column in columns]
    texts = list(zip(*served, strict=True))
    with ExitStack() as services:
        url = start_services(config, services.enter_context(services_folder(run)), ("ppo",), services)
        firsts = asyncio.run(first_passages([row.prompt for row in rows], texts, url))
    return [
        _outcome(row, first_is_right(row.prompt, row.prompt.teacher_retrieval), greedy, rest)
        for row, (greedy, *rest) in zip(rows, firsts, strict=True)
    ]


@contextmanager
def services_folder(run: RunDir) -> Iterator[RunDir]:
    """Yield the folder for the services' journal and logs: the run's own folder, or a temporary one if another
    process is executing the run.

    Two gateways may not write one journal. Nothing is paid here, so the run's journal is not needed.
    """
    if is_locked(run):
        with TemporaryDirectory(prefix="qinglan-headroom-") as folder:
            beside = RunDir(Path(folder))
            for path in (beside.logs, beside.index):
                path.mkdir()
            yield beside
    else:
        with run_lock(run):
            yield run


def _outcome(row: DevRow, teacher: float, greedy: float, samples: Sequence[float]) -> RowOutcome:
    return RowOutcome((row.validated.tenant_id, row.validated.conversation_id), row.kinds, teacher, greedy, samples)


def first_is_right(prompt: TrainingPrompt, retrieval: Retrieval) -> float:
    return float(bool(retrieval.hits) and retrieval.hits[0].id in prompt.relevant)
