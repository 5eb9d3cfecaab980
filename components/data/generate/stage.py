"""Let the teacher rewrite each question. A failed call becomes a quarantined row, never a copy of the question.

counts = generate(questions, outputs, GenerateConfig(tenant_id="fivedoctors"), gateway_url)
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from components.data.generate.config import GenerateConfig
from components.data.generate.shared_rewrites import SharedRewrites
from qinglan.concurrency import map_in_order
from qinglan.errors import DataError, OutageError, RowError
from qinglan.files.digests import digest
from qinglan.files.files import atomic_file, dump_line, read_jsonl
from qinglan.llm.client import GatewayClient
from qinglan.llm.lost_rows import Loss, asks_again, causes_in_words, loss_lines, lost_share, read_losses, remedy
from qinglan.prompts import teacher_messages
from qinglan.rows.questions import count_rows, read_questions
from qinglan.rows.rows import QuarantinedRow, Question, Rewrite, quarantine_row
from qinglan.tables.tables import write_table
from qinglan.terminal import visible
from qinglan.terminal.progress import progress
from qinglan.text.text import as_sentence

STEP = "generate"
TABLE = {
    "编号": "id", "对话编号": "conversation_id", "问题": "question", "用户画像": "user_profile",
    "历史摘要": "history_summary", "改写": "rewritten_query",
}  # fmt: skip
"""Columns of the sheet, each with the field of a Rewrite that it shows."""


class GenerateCounts(NamedTuple):
    rows: int
    rewritten: int
    quarantined: int
    lost: int
    """Questions without a usable answer by the teacher. All other quarantined rows could not be read as questions."""

    journal_answers: int
    """Answers that the journal had before this stage, so that they cost nothing. An answer that was paid for in this
    stage is not counted if an equal question reuses it."""

    causes: str = ""
    """Lost questions by cause, such as `97 truncated + 3 refused`."""

    same_rewrite: int = 0
    """Questions whose rewrite many other questions have too."""


FIGURES = {
    "rows": "questions",
    "rewritten": "questions with a rewrite",
    "quarantined": "rows without one",
    "lost": "questions that the teacher did not answer",
    "journal_answers": "answers taken from the journal",
    "same_rewrite": "questions that share their rewrite with many others",
}
"""Names of the figures on KFP's page, by field."""


def generate(
    questions: Path, rewrites: Path, table: Path, quarantine: Path, config: GenerateConfig, gateway_url: str
) -> GenerateCounts:
    return asyncio.run(_generate(questions, rewrites, table, quarantine, config, gateway_url))


async def _generate(
    questions: Path, rewrites: Path, table: Path, quarantine: Path, config: GenerateConfig, gateway_url: str
) -> GenerateCounts:
    total = count_rows(questions, config.columns)
    rows = read_questions(questions, config.columns, config.tenant_id)
    accepted = set_aside = 0
    paid_now: set[str] = set()
    from_journal: list[str] = []
    shared = SharedRewrites()
    async with GatewayClient(gateway_url, STEP) as gateway:

        async def rewrite(row: Question | QuarantinedRow) -> tuple[Rewrite | QuarantinedRow, bool]:
            return (row, False) if isinstance(row, QuarantinedRow) else await _rewrite(gateway, row, config)

        with (
            atomic_file(rewrites) as good_file, atomic_file(quarantine) as bad_file,
            write_table(table, list(TABLE)) as add, progress(STEP, total) as tick,
        ):  # fmt: skip
            async for result, cached in map_in_order(rows, rewrite, config.rows_under_way):
                if isinstance(result, QuarantinedRow):
                    set_aside += 1
                    bad_file.write(dump_line(result))
                else:
                    accepted += 1
                    if cached:
                        from_journal.append(result.call)
                    else:
                        paid_now.add(result.call)
                    shared.add(result.question, result.rewritten_query)
                    good_file.write(dump_line(result))
                    add([getattr(result, field) for field in TABLE.values()])
                tick(f"{set_aside} quarantined" if set_aside else "")
        await gateway.exported(digest(rewrites))
    if not accepted:
        raise _nothing_rewritten(quarantine)
    losses = read_losses(quarantine, STEP)
    check_losses(losses, accepted, config.max_lost, quarantine)
    paid_earlier = sum(call not in paid_now for call in from_journal)
    lost = sum(loss.rows for loss in losses)
    causes, same = causes_in_words(losses), shared.questions()
    return GenerateCounts(accepted + set_aside, accepted, set_aside, lost, paid_earlier, causes, same)


def check_losses(losses: Sequence[Loss], rewritten: int, limit: float, quarantine: Path) -> None:
    """Raise an OutageError if too many questions have no answer, before later stages are paid."""
    if lost_share(losses, rewritten) > limit:
        raise OutageError(
            *loss_lines(STEP, losses, rewritten),
            f"More than generate.max_lost ({limit:.0%}) are lost, so the run stops before later stages are paid. Set "
            f"what is named above and run the same command again, or raise generate.max_lost. Rows: {quarantine}",
        )


def _nothing_rewritten(quarantine: Path) -> OutageError | DataError:
    """Return the error for a run without any rewrite: an OutageError if the teacher failed, else a DataError. With
    few rows, the gateway may not have noticed the outage."""
    rows = [row for _, row in read_jsonl(quarantine, QuarantinedRow)]
    unanswered = [row for row in rows if row.stage == STEP]
    reasons = ", ".join(reason for reason, _ in Counter(row.reason for row in rows).most_common())
    if unanswered:
        return OutageError(
            f"The teacher rewrote none of {len(rows)} questions ({reasons}). The first: "
            f"{as_sentence(visible(unanswered[0].detail))} To do: {remedy(STEP, unanswered[0].reason)}. "
            f"{asks_again(read_losses(quarantine, STEP))} Rows: {quarantine}"
        )
    return DataError(
        f"None of {len(rows)} rows is a question ({reasons}). The first: {rows[0].where}: "
        f"{visible(rows[0].detail)} All are in {quarantine}; mend the rows and run again."
    )


async def _rewrite(
    gateway: GatewayClient, row: Question, config: GenerateConfig
) -> tuple[Rewrite | QuarantinedRow, bool]:
    try:
        answer = await gateway.ask("teacher", teacher_messages(row, config.system_prompt), row=row.id)
        query = answer.line()
    except RowError as error:
        return quarantine_row(row, STEP, error), False
    rewrite = Rewrite(**row.model_dump(), rewritten_query=query, teacher=answer.model, call=answer.call)
    return rewrite, answer.cached
