"""Report as plain data, rendered as one self-contained HTML page and as Markdown with the same tables.

report = evaluation_report(evaluation, "Hold: RL stays where it is.", "12 questions.", {"Title": blocks}, notes)
write_report(report, path)
Console().print(markdown(to_markdown(report)))

Every block is shown on the page. A block with `terminal` is also shown in the Markdown.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.evaluation.metrics import Metric, format_p_value
from qinglan.files.files import atomic_write
from qinglan.pages.markdown import markdown_text
from qinglan.pages.page import render_page
from qinglan.pages.svg_charts import ChartRow, bar_chart, forest_plot

Json = Mapping[str, Any]
ASSUMED = "assumed"
"""Note on a figure that is a setting instead of a measurement."""

SHORT_REASONS = 6
"""Largest number of a verdict's reasons in the short Markdown."""


class Cell(NamedTuple):
    """Cell of a table. On the page its note is below its text; in Markdown the note follows the text."""

    text: str
    note: str = ""
    strong: bool = False


Rows = Sequence[Sequence[str | Cell]]


class Table(NamedTuple):
    """Rows below a header. The first column holds words, all other columns hold numbers."""

    header: Sequence[str]
    rows: Rows
    title: str = ""
    terminal: bool = False
    brief: bool = False
    """True if Markdown leaves out the notes of cells, because a terminal is narrow."""

    @property
    def cells(self) -> list[list[Cell]]:
        return [[Cell(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows]

    def markdown(self) -> str:
        as_text = (lambda cell: cell.text) if self.brief else _with_note
        return markdown_table(self.header, [list(map(as_text, row)) for row in self.cells])


def _with_note(cell: Cell) -> str:
    """Return a cell's text and note for Markdown. A note is put in brackets, unless it is an interval in brackets."""
    is_interval = not cell.note or cell.note.startswith("[")
    return f"{cell.text} {cell.note}".strip() if is_interval else f"{cell.text} ({cell.note})"


class Text(NamedTuple):
    """A paragraph."""

    text: str
    title: str = ""
    terminal: bool = False

    def markdown(self) -> str:
        return "\n".join(map(markdown_text, self.text.split("\n")))


class Figures(NamedTuple):
    """SVG figures, one below the other or in a grid."""

    figures: Sequence[str]
    caption: str = ""
    grid: bool = False
    title: str = ""


class Answer(NamedTuple):
    """One system's answer to an example."""

    system: str
    text: str
    outcome: str = ""
    right: bool = False


class Example(NamedTuple):
    """Example row with the answer of every system."""

    text: str
    context: str
    answers: Sequence[Answer]


class Examples(NamedTuple):
    """Example rows of one kind."""

    title: str
    rows: Sequence[Example]


Block = Table | Text | Figures | Examples


class Section(NamedTuple):
    title: str
    blocks: Sequence[Block]


class Report(NamedTuple):
    """Content of a report, in the order in which it is shown."""

    headline: str
    promote: bool
    lead: str
    reasons: Sequence[str]
    sections: Sequence[Section]
    notes: Sequence[str]
    digests: Mapping[str, Any]

    @property
    def digest_rows(self) -> list[tuple[str, str]]:
        return list(_digest_rows(self.digests))


def evaluation_report(
    evaluation: Json,
    headline: str,
    lead: str,
    sections: Mapping[str, Iterable[Block]],
    notes: Sequence[str] = (),
) -> Report:
    """Build the report of an evaluation.json. The page leaves out a section without blocks."""
    return Report(
        headline,
        evaluation["verdict"]["promote"],
        lead,
        evaluation["verdict"]["reasons"],
        [Section(title, list(blocks)) for title, blocks in sections.items()],
        [*evaluation["notes"], *notes],
        evaluation.get("digests") or {},
    )


def write_report(report: Report, path: Path) -> None:
    with atomic_write(path) as partial:
        partial.write_text(render(report), encoding="utf-8")


def render(report: Report) -> str:
    """Render the report as an HTML page. All texts are escaped, because questions, rewrites and labels are untrusted
    data. Figures escape their own texts."""
    return render_page(Path(__file__).parent / "report.html.j2", report.headline, report=report)


def to_markdown(report: Report, notes: bool = False) -> str:
    """Render the verdict, and the blocks that are meant for a terminal, as Markdown."""
    parts = ["\n".join([f"**{report.headline}**", *(f"- {markdown_text(reason)}" for reason in report.reasons)])]
    for section in report.sections:
        blocks = [block for block in section.blocks if isinstance(block, Table | Text) and block.terminal]
        titles = [f"#### {section.title}"] if any(isinstance(block, Table) for block in blocks) else []
        parts += [*titles, *(block.markdown() for block in blocks)]
    parts.append(report.lead)
    parts += ["\n".join(f"- {markdown_text(note)}" for note in report.notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def to_short_markdown(headline: str, reasons: Sequence[str], table: Table) -> str:
    """Render the verdict with its first reasons and one table as Markdown that fits on a screen."""
    rest = len(reasons) - SHORT_REASONS
    more = [f"- and {rest} more, in the report"] if rest > 0 else []
    lines = [f"**{headline}**", *(f"- {markdown_text(reason)}" for reason in reasons[:SHORT_REASONS]), *more]
    return "\n".join([*lines, "", table.markdown(), ""])


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render a table in Markdown; line breaks and column separators in a cell are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(markdown_text(cell) for cell in line) + " |" for line in lines)


def level_cell(level: Json, metric: Metric, strong: bool = False) -> Cell:
    """Return a cell with a system's value and its interval, or with a note that the value was assumed."""
    note = ASSUMED if level.get("how") == ASSUMED else metric.interval(level)
    return Cell(metric.number(level.get("value")), note, strong)


def levels_table(systems: Mapping[str, Json], metrics: Mapping[str, Metric], terminal: bool = True) -> Table:
    """Return a table with a row for each metric and a column for each system."""
    rows = [
        [Cell(metric.name, metric.how), *(level_cell(levels.get(name, {}), metric) for levels in systems.values())]
        for name, metric in metrics.items()
    ]
    return Table(["", *systems], rows, terminal=terminal)


def gaps_table(first: str, gaps: Iterable[tuple[str, Json, Metric]], title: str = "", terminal: bool = True) -> Table:
    """Return a table with a row for each paired difference. Corrected p values, if there are any, replace the
    uncorrected p values."""
    gaps = list(gaps)
    p = next((name for name in ("p_holm", "p") if any(name in gap for _, gap, _ in gaps)), "")
    counts = [name for name in ("n", "conversations", "wins", "losses") if all(name in gap for _, gap, _ in gaps)]
    rows = list[list[str | Cell]]()
    for name, gap, metric in gaps:
        difference = Cell(metric.difference(gap.get("difference")), strong=True)
        p_value = [format_p_value(gap.get(p))] if p else []
        rows.append([name, difference, metric.difference_interval(gap), *p_value, *(f"{gap[n]:,}" for n in counts)])
    words = {"p": "p", "p_holm": "p, Holm", "n": "rows", "wins": "won", "losses": "lost"}
    columns = [words.get(name, name) for name in (p, *counts) if name]
    return Table([first, "difference", "95 %", *columns], rows, title, terminal)


def forest(title: str, gaps: Mapping[str, Json], metric: Metric, unit: str = "points") -> str:
    """Draw differences with their intervals as an SVG figure: in points for a share, else in the metric's unit."""
    scale = 100.0 if metric.unit == "share" else 1.0
    rows = []
    for name, gap in gaps.items():
        value, low, high = (None if gap[end] is None else scale * gap[end] for end in ("difference", "low", "high"))
        rows.append(ChartRow(name, value, low, high, f"{metric.difference(gap['difference'])} {unit}"))
    return forest_plot(title, rows, unit)


def bars(systems: Mapping[str, Json], name: str, metric: Metric, colours: Mapping[str, str] | None = None) -> str:
    rows = []
    for system, levels in systems.items():
        value, low, high = (levels[name][end] for end in ("value", "low", "high"))
        rows.append(ChartRow(system, value, low, high, metric.number(value), (colours or {}).get(system, "")))
    return bar_chart(metric.name, rows, metric.most)


DIGEST_WORDS = {"knowledge_bases": "knowledge bases", "sft_model": "sft model"}
"""Words for the names of digests that occur in no other message. They are listed so that `make messages` finds and
translates them."""


def _digest_rows(digests: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield each digest with its path in words, such as `models, rl`."""
    for name, digest in digests.items():
        path = f"{before}{DIGEST_WORDS.get(name, name.replace('_', ' '))}"
        if isinstance(digest, Mapping):
            yield from _digest_rows(digest, f"{path}, ")
        else:
            yield from ((path, str(entry)) for entry in (digest if isinstance(digest, list) else [digest]))


Row = dict[str, Any]


def pick_examples(
    rows: Iterable[Row],
    kinds: Sequence[str],
    kind_of: Callable[[Row], str | None],
    count: int,
    group_of: Callable[[Row], Any],
) -> dict[str, list[Row]]:
    """Choose up to `count` rows of each kind, and within a kind at most one from each group.

    Rows are chosen by a hash of their id, so that their content has no influence. A row without a kind is left out.
    """
    best: dict[str, dict[Any, tuple[bytes, Row]]] = {kind: {} for kind in kinds}
    for row in rows:
        if (kind := kind_of(row)) is None:
            continue
        chosen, group, order = best[kind], group_of(row), hashlib.sha256(str(row["id"]).encode()).digest()
        if group not in chosen or order < chosen[group][0]:
            chosen[group] = order, row
        if len(chosen) > count:
            del chosen[max(chosen, key=lambda name: chosen[name][0])]
    return {kind: [row for _, row in sorted(chosen.values(), key=itemgetter(0))] for kind, chosen in best.items()}
