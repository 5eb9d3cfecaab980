"""The gate's verdict in the lineage: the gate has made it, a release uses it.

add_verdict(step, verdict)
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import orjson

from qinglan.evaluation.verdict import Verdict, verdict_bytes
from qinglan.files import sha256_bytes
from qinglan.lineage.dsse import ENVELOPE_SUFFIX, open_envelope
from qinglan.lineage.record import StepReport
from qinglan.lineage.statement import ArtifactRef, Statement, from_payload, parse_time

VERDICT = "verdict"
PROMOTE, HOLD = "promote", "hold"


def add_verdict(step: StepReport, verdict: Verdict) -> None:
    """Let the step's statement say that it made this verdict, and keep its words."""
    content = verdict_bytes(verdict)
    step.made.append(ArtifactRef(VERDICT, sha256_bytes(content)))
    step.papers[verdict_file_name(sha256_bytes(content))] = content


def verdict_file_name(digest: str) -> str:
    return f"{VERDICT}-{digest[:12]}.json"


class LineageStatement(NamedTuple):
    """A statement of a lineage folder; nothing of it is verified."""

    file: str
    digest: str
    statement: Statement


def read_lineage(lineage: Path) -> list[LineageStatement]:
    """All that the folder holds, oldest first; a DataError where one is none."""
    found = [read_lineage_statement(path) for path in sorted(lineage.glob(f"*{ENVELOPE_SUFFIX}"))]
    return sorted(found, key=lambda one: (one.statement.at, one.file))


def read_lineage_statement(path: Path) -> LineageStatement:
    """A DataError where it is no statement, or has no time."""
    sealed = path.read_bytes()
    statement = from_payload(open_envelope(sealed, str(path)).payload, str(path))
    parse_time(statement.ended)
    return LineageStatement(path.name, sha256_bytes(sealed), statement)


def gate_statements(told: list[LineageStatement], evaluation: str, verdict: str) -> list[LineageStatement]:
    """The statements that say: of this evaluation I have made this verdict."""
    return [
        one
        for one in told
        if evaluation in {part.digest for part in one.statement.used}
        and verdict in {part.digest for part in one.statement.made if part.name == VERDICT}
    ]


def unreferenced_files(said: Iterable[Statement], files: Mapping[str, str]) -> list[str]:
    """Papers among a lineage's files, by name and digest, whose bytes no statement names."""
    named = {part.digest for one in said for part in (*one.made, *one.used)}
    return sorted(
        name for name, digest in files.items() if not name.endswith(ENVELOPE_SUFFIX) and digest not in named
    )


def says_promote(paper: bytes) -> bool:
    try:
        return bool(orjson.loads(paper)["word"] == PROMOTE)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False
