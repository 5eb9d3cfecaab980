"""Let judges label the rows without gold passages; no judge is called if every row has gold.

The judge is first tested on a few rows. Then it judges each row's passages, and a second model confirms those that it
calls relevant. Rows with gold measure how good the judges are. People can correct the labels in a sheet.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson

from components.data.label.config import LabelConfig
from components.data.label.judges import Judges, SecondJudge
from components.data.label.measure import drawn, measure_gold
from components.data.label.report import report_lines
from components.data.label.sheet import (
    Corrections,
    UnusedCorrections,
    corrected,
    read_corrections,
    unused_corrections,
    write_sheet,
)
from components.data.label.tally import Tally
from components.data.label.trial import refuse_too_few, refuse_unfit, try_judges
from qinglan.concurrency import map_in_order
from qinglan.errors import RowError
from qinglan.files.digests import digest
from qinglan.files.files import atomic_file, dump_line, read_jsonl, write_atomically
from qinglan.llm.client import GatewayClient
from qinglan.llm.providers.model_names import same_model
from qinglan.rag.client import RagClient
from qinglan.rows.labels import RowLabels
from qinglan.rows.rows import QuarantinedRow, ValidatedRewrite, quarantine_row
from qinglan.terminal import say
from qinglan.terminal.progress import progress

STEP = "label"
ROWS_UNDER_WAY = 64


class LabelCounts(NamedTuple):
    rows: int
    gold: int
    """Rows with gold passages, of which some are judged to measure the judges."""

    relevant: int
    nothing_relevant: int
    unlabelled: int
    """Rows that were not judged, because no call was left or no answer was usable."""

    calls: int
    passages: int
    """Passages that were judged."""

    corrected: int
    """Passages with a person's grade."""


FIGURES = {
    "rows": "rows",
    "gold": "rows with gold passages",
    "relevant": "rows with a passage labelled relevant",
    "nothing_relevant": "rows for which nothing relevant was found",
    "unlabelled": "rows that were not labelled",
    "calls": "paid calls for labels",
    "passages": "passages judged",
    "corrected": "passages graded by people",
}
"""Names of the figures on KFP's page, by field."""


class Outputs(NamedTuple):
    """Paths that the stage writes."""

    labels: Path
    label_sheet: Path
    label_holes: Path
    label_report: Path


def label(validated: Path, out: Outputs, config: LabelConfig, gateway_url: str) -> LabelCounts:
    """Write the labels, the sheet for people, the rows without a relevant passage, and the report on the judges."""
    corrections = read_corrections(config.corrections) if config.corrections else {}
    if config.calls == 0 or not any(True for _ in _without_gold(validated)):
        if corrections:
            say(f"[label] warn: {config.corrections} is not used, since no row is labelled")
        gold = [bool(row.gold) for _, row in read_jsonl(validated, ValidatedRewrite)]
        for path, content in ((out.labels, b""), (out.label_holes, b""), (out.label_report, b"{}")):
            write_atomically(path, content)
        write_sheet(out.label_sheet, [])
        return LabelCounts(len(gold), sum(gold), 0, 0, len(gold) - sum(gold), 0, 0, 0)
    return asyncio.run(_label(validated, out, config, corrections, gateway_url))


def _without_gold(validated: Path) -> Iterator[ValidatedRewrite]:
    return (row for _, row in read_jsonl(validated, ValidatedRewrite) if not row.gold)


async def _label(
    validated: Path, out: Outputs, config: LabelConfig, corrections: Corrections, gateway_url: str
) -> LabelCounts:
    unused = UnusedCorrections()
    if config.corrections:
        rows = (row for _, row in read_jsonl(validated, ValidatedRewrite))
        unused = unused_corrections(config.corrections, corrections, rows)
    async with GatewayClient(gateway_url, STEP) as gateway, RagClient.of_gateway(gateway_url) as rag:
        models = {role: str(about["model"]) for role, about in (await gateway.report())["models"].items()}
        second = second_judge(models)
        judges = Judges(gateway, rag, second, config)
        tried = drawn(_without_gold(validated), config.trial_rows, config)
        for trial in await try_judges(judges, tried, second, models):
            refuse_unfit(trial, config)
        tally = Tally(config)
        total = sum(1 for _ in _without_gold(validated))
        with (
            atomic_file(out.labels) as labels_file, atomic_file(out.label_holes) as holes_file,
            progress(STEP, total) as tick,
        ):  # fmt: skip
            async for row, labels in label_rows(judges, _without_gold(validated), config):
                labels = corrected(labels, corrections)
                labels_file.write(dump_line(labels))
                if labels.outcome != "relevant":
                    holes_file.write(dump_line(hole(row, labels)))
                tally.add(row, labels)
                tick(f"{tally.outcomes['relevant']} relevant")
        await gateway.exported(digest(out.labels))
        with_gold = (row for _, row in read_jsonl(validated, ValidatedRewrite) if row.gold)
        measured = await measure_gold(judges, with_gold, config)
    gold = sum(bool(row.gold) for _, row in read_jsonl(validated, ValidatedRewrite))
    write_sheet(out.label_sheet, tally.sheet())
    report = tally.report() | {
        "models": models, "confirmed_by": second._asdict(), "gold": measured,
        "unused_corrections": unused._asdict(),
    }  # fmt: skip
    write_atomically(out.label_report, orjson.dumps(report, option=orjson.OPT_INDENT_2))
    say(*(f"[label] {line}" for line in report_lines(report)))
    refuse_too_few(tally.outcomes, gold, out.label_holes, config)
    outcomes = tally.outcomes
    return LabelCounts(
        outcomes.total() + gold, gold, outcomes["relevant"], outcomes["nothing relevant"],
        outcomes["out of calls"] + outcomes["no usable answer"],
        tally.calls, tally.passages, tally.corrected,
    )  # fmt: skip


def second_judge(models: Mapping[str, str]) -> SecondJudge:
    return SecondJudge("judge", 1) if same_model(models["judge"], models["examiner"]) else SecondJudge("examiner", 0)


async def label_rows(
    judges: Judges, rows: Iterator[ValidatedRewrite], config: LabelConfig
) -> AsyncIterator[tuple[ValidatedRewrite, RowLabels]]:
    """Yield each row with its labels, in order. Rows beyond the allowed calls get the outcome `out of calls`.

    Rows are taken in groups whose calls together cannot exceed the limit, so that timing does not decide which rows
    are labelled.
    """
    # Each row of a group may need calls_per_row, so a group has at most left // calls_per_row rows.
    left = config.calls
    while group := list(islice(rows, max(1, min(ROWS_UNDER_WAY, left // config.calls_per_row)))):
        if left < config.calls_per_row:
            for row in group:
                yield row, RowLabels(id=row.id, tenant_id=row.tenant_id, outcome="out of calls", calls=0)
            continue
        at = 0
        async for labels in map_in_order(group, judges.label, ROWS_UNDER_WAY):
            yield group[at], labels
            at, left = at + 1, left - labels.calls


def hole(row: ValidatedRewrite, labels: RowLabels) -> QuarantinedRow:
    """Quarantine a row without a relevant passage. The entry names the nearest passage that was judged."""
    nearest = max(labels.judged, key=lambda passage: passage.grade, default=None)
    shown = (
        f"nearest of {len(labels.judged)}: {nearest.id} {nearest.title}, grade {nearest.grade}: {nearest.reason}"
        if nearest
        else "no passage was judged"
    )
    if labels.unusable:
        shown += f"; answers without use: {', '.join(labels.unusable)}"
    return quarantine_row(row, STEP, RowError(labels.outcome, f"need: {row.need}; {shown}"))
