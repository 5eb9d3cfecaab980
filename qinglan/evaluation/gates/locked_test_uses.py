"""Count the models that a locked test has judged. The more models it has judged, the likelier the best is only lucky.

uses = count_use(keys, "rewriter", model)    # {"test": "9f2c…", "line": "rewriter", "count": 2}; None without a store
use_faults(store, evaluation)                 # reasons against a release, if the store's list contradicts it

The list of models is in the store of releases, under the digest of the test's questions. So it outlives the runs, and
new answers of a teacher to the same questions do not make a new test. A model that is judged again keeps its number.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from qinglan.errors import DataError
from qinglan.run_id import RUN_VARIABLE

if TYPE_CHECKING:
    from qinglan.store import Store

NOT_COUNTED = (
    "Nobody counts how many models this test has judged: the run names no store (register.store, QINGLAN_STORE)."
)


def count_use(keys: Iterable[str], line: str, model: str) -> dict[str, Any] | None:
    """Add a model to the list of models that a test has judged. Returns the record for evaluation.json; None if the
    run has no store.

    `keys` are the test's texts, normalised as for the search of near-duplicates.
    """
    from qinglan.store import STORE_VARIABLE, open_store

    if not (address := os.environ.get(STORE_VARIABLE, "")):
        return None
    test = hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()
    about = {"at": f"{datetime.now(UTC):%FT%TZ}", "run": os.environ.get(RUN_VARIABLE, "")}
    count = open_store(address).prepare().add_use(test, line, model, about)
    return {"test": test, "line": line, "count": count}


def own_store_faults(evaluation: Mapping[str, Any]) -> list[str]:
    """Call `use_faults` with the run's own store; empty if the run has no store, as in a cluster's gate."""
    from qinglan.store import STORE_VARIABLE, open_store

    address = os.environ.get(STORE_VARIABLE, "")
    return use_faults(open_store(address), evaluation) if address else []


def use_faults(store: "Store", evaluation: Mapping[str, Any]) -> list[str]:
    """Return a reason against a model if the store's list lacks it, has another number for it, or cannot be read. An
    evaluation without a count gives no reason, but a trust policy can require the count (`Limits.counted`)."""
    from qinglan.evaluation.gates.kinds import kind_of, mapping_at

    if evaluation.get("test_uses") is None:
        return []
    uses = mapping_at(evaluation, "test_uses")
    try:
        listed = store.uses(str(uses.get("test")), str(uses.get("line")))
        model = kind_of(evaluation, "evaluation.json").model(evaluation)
    except DataError as error:
        return [f"nobody can tell how many models its locked test has judged: {error}"]
    # Two evaluations at once may have put the model on the list twice: its first number counts.
    number = min((number for number, name in listed.items() if name == model), default=0)
    count = uses.get("count")
    if not number:
        return [
            "the list in this store of the models that its locked test has judged lacks this one: it was counted in "
            "another store, or the list was deleted. Evaluate it again with this store (register.store)"
        ]
    if count != number:
        return [f"its locked test has judged {count} models by the evaluation, and {number} by its store's list"]
    return []
