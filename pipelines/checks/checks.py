"""Results of checks: ok, warning or error, each with the next step; `qinglan doctor` and `check-rag` print them."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from qinglan.errors import QinglanError

State = Literal["ok", "warning", "error"]
STYLES: dict[State, str] = {"ok": "green", "warning": "yellow", "error": "red"}


class Check(NamedTuple):
    """Result of a check of one subject."""

    state: State
    subject: str
    """Name of the checked thing in a word or two, such as `keys`."""

    what: str
    next_step: str = ""
    """Command or setting that solves the problem; empty if there is none."""

    more: tuple[str, ...] = ()
    """Further lines of the result."""

    command: str = ""
    """Shell command of the next step that can be run as it is; `...` stands for a value that only a person knows."""


def failed(subject: str, error: QinglanError, next_step: str = "") -> Check:
    first, *more = error.lines
    return Check("error", subject, first, next_step, tuple(more))


def worst_state(checks: Sequence[Check]) -> State:
    states = {check.state for check in checks}
    return "error" if "error" in states else "warning" if "warning" in states else "ok"


def print_checks(checks: Sequence[Check]) -> None:
    """Print each check on a line, and its next step below."""
    from rich.cells import cell_len, set_cell_size

    from qinglan.terminal import in_language
    from qinglan.terminal.console import Console, styled

    console = Console()
    wide = max((cell_len(in_language(check.subject)) for check in checks), default=0)
    for check in checks:
        state = (set_cell_size(in_language(check.state), 7) + " ", STYLES[check.state])
        subject = set_cell_size(in_language(check.subject), wide)
        console.print(styled(state, f"{subject}  {in_language(check.what)}"), highlight=False, soft_wrap=True)
        for line in check.more:
            console.print(styled(f"{'':8}{'':{wide}}  {in_language(line)}"), highlight=False, soft_wrap=True)
        if check.next_step or check.command:
            next_step = f"{'':8}{'':{wide}}  -> {in_language(check.next_step)} {check.command}".rstrip()
            console.print(styled(next_step), highlight=False, soft_wrap=True)
