"""What may be released: the very bytes that the verdict is about, named by their digests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from components.evaluation.rewriter.config import GateConfig
from components.evaluation.rewriter.gate import decide
from qinglan.errors import DataError, Held
from qinglan.files import replaced, sha256_file
from qinglan.lineage.digests import digest
from qinglan.verdict import read_evaluation


class Candidate(NamedTuple):
    model: str
    """Digest of the model's folder."""

    evaluation: str
    """Digest of the file that holds its verdict."""

    locked_test: str
    """Digest of the questions that it was judged on."""


def candidate(evaluation: Path, model: Path, out: Path) -> Candidate:
    """Write the candidate's file; a model that was not the one judged, or was held, never becomes one.

    The verdict is taken from the evaluation's figures again: a word in the file is no proof.
    """
    judged = read_evaluation(evaluation)
    limits = _part(_part(judged, "settings"), "gate")
    verdict = decide(judged, GateConfig.parse(limits, f"{evaluation}: settings.gate"))
    if not verdict.promote:
        raise Held("The gate says hold: " + " ".join(verdict.reasons))
    digests = _part(judged, "digests")
    found, meant = digest(model), _part(digests, "models").get(judged["candidate"])
    if found != meant:
        raise DataError(
            f"{model} has digest {found[:12]}, and the verdict in {evaluation} is about {str(meant)[:12]}. "
            "Evaluate the model that shall be released."
        )
    made = Candidate(found, sha256_file(evaluation), str(digests.get("test")))
    with replaced(out) as partial:
        partial.write_bytes(orjson.dumps(made._asdict(), option=orjson.OPT_INDENT_2))
    return made


def _part(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}
