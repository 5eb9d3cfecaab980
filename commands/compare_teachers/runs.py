"""Run the rewriter's line up to `validate` for each candidate teacher, on the same rows.

DIR/
  questions.jsonl         the sample: whole conversations of training
  journal.sqlite          the paid answers of all runs, with one budget; a request that two runs share is paid once
  teachers/<name>/        each teacher's run, as `qinglan run --until validate` writes it
  comparison.json  .html  the results and the page

A second comparison in the same folder does not pay again for answers in the journal.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from commands.compare_teachers.config import TeacherChoice, TeachersConfig
from commands.compare_teachers.report import compare_runs, write_comparison
from commands.run.run import ROLES, knowledge_base_options, run_pipeline, start_backends
from components.data.convert.split_rows import SplitInput, conversation_splits
from pipelines.checks.planned_run import check_run
from pipelines.checks.preflight import input_file_problems, raise_together, with_run_files
from pipelines.checks.readiness import problem_of
from pipelines.execute.execution import run_lock, select_stages
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import REWRITER, RunConfig, StandIns
from qinglan.errors import BudgetError, DataError
from qinglan.files.files import atomic_write, dump_line
from qinglan.llm.config import GatewayConfig
from qinglan.processes.services import run_service
from qinglan.rows.questions import read_questions
from qinglan.rows.rows import Question
from qinglan.rows.splits import Conversation
from qinglan.terminal import say

STAGES = select_stages(REWRITER, "", "validate")


class Sample(NamedTuple):
    rows: list[Question]
    training: int
    """Number of training rows that the sample was drawn from."""

    locked: int
    """Number of dev and test rows, which are never used."""


class PlannedCalls(NamedTuple):
    """Number and estimated cost of the paid calls of one model."""

    name: str
    """Name of the teacher, or `judge`."""

    model: str
    calls: int
    cost: float


def compare(
    config: RunConfig, teachers: TeachersConfig, root: Path, rows: int, confirm: Callable[[list[PlannedCalls]], None],
    quiet: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Run every teacher and write the results; returns the content of comparison.json."""
    shared = RunDir(root)
    config = with_run_files(config, shared, "")
    raise_together([*input_file_problems(config)])
    sample = draw_sample(config, rows, config.evaluate.seed)
    with run_lock(shared), ExitStack() as services:
        questions = root / "questions.jsonl"
        with atomic_write(questions) as partial:
            partial.write_bytes(b"".join(map(dump_line, sample.rows)))
        config = config.model_copy(update={"questions": questions})
        gateway = _start_backends(config, teachers, shared, services)
        runs = {
            choice.name: (
                RunDir(root / "teachers" / choice.name, shared.journal),
                _run_config(config, gateway, choice),
            )
            for choice in teachers.teachers
        }
        confirm(_plan_calls(config, runs))
        # One after the other: two gateways may not write one journal, and providers limit the calls of an account.
        for name, (run, settings) in runs.items():
            say(f"Teacher {name}")
            run_pipeline(
                settings, run.root, until="validate", quiet=quiet, approve=lambda plan: None, journal=run.journal
            )
    comparison = compare_runs(config, teachers, runs, sample.rows)
    comparison["counts"] |= {"training_rows": sample.training, "locked_rows": sample.locked}
    return write_comparison(comparison, root)


def _start_backends(
    config: RunConfig, teachers: TeachersConfig, shared: RunDir, services: ExitStack
) -> GatewayConfig:
    """Start the profile's stand-ins once for all runs. A stand-in teacher plays each candidate with the candidate's
    own `stand_in` skill."""
    stand_ins = config.stand_ins
    gateway = start_backends(
        config.model_copy(update={"stand_ins": stand_ins.model_copy(update={"teacher": False})}), shared, services
    )
    if not stand_ins.teacher:
        return gateway
    arguments = [*knowledge_base_options(config), "--latency", str(stand_ins.teacher_seconds), "--port", "0"]
    for choice in teachers.teachers:
        skill = choice.stand_in.model_dump(mode="json") | {"tenant": config.tenant_id}
        arguments += ["--variant", f"{choice.model.model}={orjson.dumps(skill).decode()}"]
    url = services.enter_context(run_service("standins.teacher", arguments, shared.logs / "teacher.log"))
    models = {
        role: getattr(gateway, role).model_copy(update={"base_url": url}) for role in ROLES if getattr(gateway, role)
    }
    return gateway.model_copy(update=models)


def _run_config(config: RunConfig, gateway: GatewayConfig, choice: TeacherChoice) -> RunConfig:
    """The profile with this teacher. The run goes on if the teacher loses rows or finds less, because the comparison
    measures that."""
    model = choice.model
    if config.stand_ins.teacher:
        model = model.model_copy(update={"base_url": gateway.teacher.base_url})
    judge = gateway.judge or gateway.teacher
    return config.model_copy(
        update={
            "stand_ins": StandIns(),
            "gateway": gateway.model_copy(update={"teacher": model, "judge": judge}),
            "generate": config.generate.model_copy(update={"max_lost": 1.0}),
            "validate_": config.validate_.model_copy(update={"allow_worse_teacher": True}),
        }
    )


def _plan_calls(config: RunConfig, runs: Mapping[str, tuple[RunDir, RunConfig]]) -> list[PlannedCalls]:
    """Check all runs and count their calls; a comparison above the budget is refused before anything is paid."""
    checked = {name: check_run(settings, run, STAGES) for name, (run, settings) in runs.items()}
    problems = [problem for check in checked.values() if (problem := problem_of(check.raise_problems))]
    raise_together(list({str(problem): problem for problem in problems}.values()))
    planned: dict[str, PlannedCalls] = {}
    for name, check in checked.items():
        for step in check.plan.steps:
            if step.model:  # the judge's calls are the same in each run
                who = name if step.step == "generate" else "judge"
                planned[who] = PlannedCalls(who, step.model, step.calls, step.cost)
    total, budget = sum(calls.cost for calls in planned.values()), config.gateway.budget
    if config.pays and total > budget:
        raise BudgetError(
            f"The comparison costs about {total:.2f} {config.gateway.teacher.price.currency}, and gateway.budget is "
            f"{budget:g}. Raise it, or give fewer --rows. Nothing was paid."
        )
    return list(planned.values())


def draw_sample(config: RunConfig, count: int, seed: int) -> Sample:
    """Draw whole training conversations with about `count` rows. The same sheet and seed give the same rows, and a
    larger sample contains the smaller one."""
    surveyed = [
        SplitInput(at, row.id, _conversation(row), row.split, "") for at, row in enumerate(_questions(config), 1)
    ]
    splits = conversation_splits(surveyed, config.convert)  # one marked turn decides for all of its conversation
    counts = Counter(row.conversation for row in surveyed if splits[row.conversation] == "train")
    locked = len(surveyed) - counts.total()
    if not counts:
        raise DataError(
            f"{config.questions}: none of {locked:,} rows is for training. Teachers are never compared on dev or "
            "the locked test: the choice would flatter every later figure. Give the sheet conversations to train on."
        )
    chosen: set[Conversation] = set()
    # In the order of a hash: a larger sample contains the smaller one, so that what was paid for is used.
    for name in sorted(counts, key=lambda name: _position(name, seed)):
        if sum(counts[conversation] for conversation in chosen) < count:
            chosen.add(name)
    rows = [row for row in _questions(config) if _conversation(row) in chosen]
    return Sample(rows, counts.total(), locked)


def _conversation(row: Question) -> Conversation:
    return row.tenant_id, row.conversation_id


def _questions(config: RunConfig) -> Iterator[Question]:
    assert config.questions is not None
    for row in read_questions(config.questions, config.generate.columns, config.tenant_id):
        if isinstance(row, Question):
            yield row


def _position(conversation: Conversation, seed: int) -> bytes:
    """A conversation's place in the drawing order, which does not depend on the order of the sheet."""
    return hashlib.sha256("\x1f".join((f"compare {seed}", *conversation)).encode()).digest()
