"""Tables of whole runs: what a run's own evaluation measured, as a line of Markdown."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.files.files import atomic_write

COLUMNS = (
    "run", "gold in the sheet", "n", "teacher", "SFT", "RL", "RL - teacher, 95 %", "RL - SFT", "gate",
    "kind with the least gain", "need score", "examiner", "gap: teacher, SFT, RL",
    "unseen phrasing: teacher, SFT, RL", "code",
)  # fmt: skip
FEWEST = 30
"""Questions of a kind, below which its difference says nothing."""


class Figures(NamedTuple):
    """A run's figures that have a goal."""

    gain: float
    low: float
    least_kind: float
    """The candidate's difference to the teacher in the kind of question where it is smallest."""

    need: float
    examiner: float


def figures(evaluation: dict[str, Any]) -> Figures:
    against = evaluation["paired"]["rl_vs_teacher"]
    return Figures(
        against["difference"], against["low"], least_kind(evaluation)[1], against["judged_top1"]["difference"],
        against["quality"]["difference"],
    )  # fmt: skip


def least_kind(evaluation: dict[str, Any]) -> tuple[str, float]:
    """The kind of question in which the candidate gains least over the teacher, and by how much."""
    gains = {
        name: kind["difference"]["difference"]
        for name, kind in evaluation["kinds"].items()
        if kind["difference"]["n"] >= FEWEST
    }
    return min(gains.items(), key=lambda item: item[1])


def table_row(name: str, gold: str, evaluation: dict[str, Any]) -> str:
    """A line of the table."""
    paired, systems = evaluation["paired"], evaluation["systems"]
    against = paired["rl_vs_teacher"]
    kind, gain = least_kind(evaluation)
    cells = [
        name,
        gold,
        str(against["n"]),
        *(f"{systems[entry]['top1']['value']:.3f}" for entry in ("teacher", "sft", "rl")),
        interval(against),
        interval(paired["rl_vs_sft"]),
        evaluation["verdict"]["word"],
        f"{kind}, {gain:+.3f}",
        interval(against["judged_top1"], 2),
        interval(against["quality"], 2),
        shares(evaluation["slices"], "gap"),
        shares(evaluation["slices"], "new_ask"),
        revision(evaluation["digests"]["code"]),
    ]
    return f"| {' | '.join(cells)} |"


def interval(pair: dict[str, Any], digits: int = 3) -> str:
    return f"{pair['difference']:+.{digits}f} [{pair['low']:+.{digits}f}, {pair['high']:+.{digits}f}]"


def shares(slices: dict[str, Any], part: str) -> str:
    """Shares of teacher, SFT and RL among the questions of a slice of the sample."""
    systems = slices.get(part, {}).get("systems", {})
    values = (systems.get(name, {}).get("value") for name in ("teacher", "sft", "rl"))
    return ", ".join("-" if value is None else f"{value:.2f}" for value in values)


def revision(code: dict[str, Any]) -> str:
    return f"{code['revision'][:7]}{' and changes' * bool(code.get('dirty'))}"


def write_page(path: Path, title: str, command: str, lines: Sequence[str]) -> None:
    """Write a page with the table of these runs."""
    about = (
        f"Written by `{command}`; what was asked, and how, is in [science.md](science.md). Shares of locked",
        "questions with the gold passage first; differences are RL's minus the other's, intervals of 95 % over",
        "conversations. The need score is the reranker's for the first passage against the need; the examiner",
        "marks 1 to 5.",
    )
    write_table(path, title, about, COLUMNS, lines)


def write_table(path: Path, title: str, about: Sequence[str], columns: Sequence[str], lines: Sequence[str]) -> None:
    """Write a page with a title, what it is about, and one table."""
    page = [f"# {title}", "", *about, "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *lines, ""]
    with atomic_write(path) as partial:
        partial.write_text("\n".join(page), encoding="utf-8")
