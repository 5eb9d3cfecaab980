"""What may be released: the very bytes that the verdict is about, named by their digests."""

from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.errors import DataError, Held
from qinglan.files import replaced, sha256_file
from qinglan.lineage.record import digest


class Candidate(NamedTuple):
    model: str
    """Digest of the model's folder."""

    evaluation: str
    """Digest of the file that holds its verdict."""

    locked_test: str
    """Digest of the questions that it was judged on."""


def candidate(evaluation: Path, model: Path, out: Path) -> Candidate:
    """Write the candidate's file; a model that was not the one judged, or was held, never becomes one."""
    judged: dict[str, Any] = orjson.loads(evaluation.read_bytes())
    verdict = judged["verdict"]
    if not verdict["promote"]:
        raise Held("The gate says hold: " + " ".join(verdict["reasons"]))
    found, meant = digest(model), judged["digests"]["models"].get(judged["candidate"])
    if found != meant:
        raise DataError(
            f"{model} has digest {found[:12]}, and the verdict in {evaluation} is about {str(meant)[:12]}. "
            "Evaluate the model that shall be released."
        )
    made = Candidate(found, sha256_file(evaluation), judged["digests"]["test"])
    with replaced(out) as partial:
        partial.write_bytes(orjson.dumps(made._asdict(), option=orjson.OPT_INDENT_2))
    return made
