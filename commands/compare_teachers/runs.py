"""Run the rewriter pipeline up to `validate` for each candidate teacher, on the same rows.

DIR/
  questions.jsonl     the sample: whole training conversations
  journal.sqlite      the paid answers of all runs, with one budget; a request that two runs share is paid once
  teachers/<name>/    each teacher's run, as `qinglan run --until validate` writes it
  comparison.json     the results

A second comparison in the same folder does not pay again for answers in the journal.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson

from commands.compare_teachers.config import TeacherChoice, TeachersConfig
from commands.compare_teachers.table import Run, compare_runs
from commands.run.run import run_pipeline, start_backends
from components.data.convert.split_rows import SplitInput, conversation_splits
from components.evaluation.rewriter.score_systems import draw_rows
from pipelines.checks.plan import PlanStep
from pipelines.checks.planned_run import check_run
from pipelines.checks.preflight import input_file_problems, raise_together, with_run_files
from pipelines.checks.readiness import problem_of
from pipelines.execute.execution import run_lock, select_stages
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import REWRITER, RunConfig, StandIns
from qinglan.errors import BudgetError, DataError
from qinglan.evaluation.gates.evaluation_file import write_evaluation
from qinglan.files.files import atomic_write, dump_line
from qinglan.llm.config import GatewayConfig
from qinglan.rows.questions import read_questions
from qinglan.rows.rows import Question
from qinglan.terminal import say

STAGES = select_stages(REWRITER, "", "validate")


PlannedCalls = Mapping[str, PlanStep]
"""Planned paid calls, by the teacher's name; the judge's calls have the key `judge`."""


def compare(
    config: RunConfig, teachers: TeachersConfig, root: Path, rows: int, confirm: Callable[[PlannedCalls], None],
    quiet: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Run the pipeline with every teacher and write the results; returns the content of comparison.json."""
    shared = RunDir(root)
    config = with_run_files(config, shared, "")
    raise_together([*input_file_problems(config)])
    sample, counts = draw_sample(config, rows, config.evaluate.seed)
    with run_lock(shared), ExitStack() as services:
        questions = root / "questions.jsonl"
        with atomic_write(questions) as partial:
            partial.write_bytes(b"".join(map(dump_line, sample)))
        config = config.model_copy(update={"questions": questions})
        gateway = start_backends(config, shared, services, _stand_in_variants(config.tenant_id, teachers))
        runs = dict[str, Run]()
        for choice in teachers.teachers:
            folder = RunDir(root / "teachers" / choice.name, shared.journal)
            runs[choice.name] = folder, _run_config(config, gateway, choice)
        confirm(_plan_calls(config, runs))
        # One after the other: two gateways may not write one journal, and providers limit the calls of an account.
        for name, (run, settings) in runs.items():
            say(f"Teacher {name}")
            run_pipeline(
                settings, run.root, until="validate", quiet=quiet, approve=lambda plan: None, journal=run.journal
            )
    comparison = compare_runs(config, teachers, runs, sample)
    return write_evaluation(root / "comparison.json", comparison | {"counts": comparison["counts"] | counts})


def _stand_in_variants(tenant: str, teachers: TeachersConfig) -> Iterator[str]:
    """Yield the options with which the stand-in teacher imitates each candidate, at that candidate's skill."""
    for choice in teachers.teachers:
        skill = choice.stand_in.model_dump(mode="json") | {"tenant": tenant}
        yield from ("--variant", f"{choice.model.model}={orjson.dumps(skill).decode()}")


def _run_config(config: RunConfig, gateway: GatewayConfig, choice: TeacherChoice) -> RunConfig:
    """Return the profile with this teacher. A run does not stop for lost rows, or for a teacher that is worse than
    the plain question, because the comparison measures both."""
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


def _plan_calls(config: RunConfig, runs: Mapping[str, Run]) -> PlannedCalls:
    """Check all runs and count their calls; a comparison above the budget is refused before anything is paid."""
    checked = {name: check_run(settings, run, STAGES) for name, (run, settings) in runs.items()}
    problems = [problem for check in checked.values() if (problem := problem_of(check.raise_problems))]
    raise_together(list({str(problem): problem for problem in problems}.values()))
    planned = {
        name if step.step == "generate" else "judge": step  # the judge's calls are the same in each run
        for name, check in checked.items()
        for step in check.plan.steps
        if step.model
    }
    total, budget = sum(step.cost for step in planned.values()), config.gateway.budget
    if config.pays and total > budget:
        raise BudgetError(
            f"The comparison costs about {total:.2f} {config.gateway.teacher.price.currency}, and gateway.budget is "
            f"{budget:g}. Raise it, or give fewer --rows. Nothing was paid."
        )
    return planned


def draw_sample(config: RunConfig, count: int, seed: int) -> tuple[list[Question], dict[str, int]]:
    """Draw whole training conversations with about `count` rows in all, never dev or test rows. Also return the
    sheet's number of training rows, and of dev and test rows. The same sheet and seed give the same rows, and a
    larger sample contains the smaller one."""
    assert config.questions is not None
    rows = read_questions(config.questions, config.generate.columns, config.tenant_id)
    questions = [row for row in rows if isinstance(row, Question)]
    surveyed = [
        SplitInput(at, row.id, (row.tenant_id, row.conversation_id), row.split, "")
        for at, row in enumerate(questions, 1)
    ]
    splits = conversation_splits(surveyed, config.convert)  # the split stated for one turn holds for its conversation
    training = [row for row in questions if splits[row.tenant_id, row.conversation_id] == "train"]
    locked = len(questions) - len(training)
    if not training:
        raise DataError(
            f"{config.questions}: none of {locked:,} rows is for training. Teachers are never compared on dev or "
            "the locked test: the choice would flatter every later figure. Give the sheet conversations to train on."
        )
    rows_drawn = [training[at] for at in sorted(draw_rows(training, count, seed))]
    return rows_drawn, {"training_rows": len(training), "locked_rows": locked}
