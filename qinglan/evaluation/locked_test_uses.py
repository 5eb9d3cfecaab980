"""Counts how many models a locked test has judged: each further one may be the best by luck.

uses = count_use(keys, "rewriter", model)    # {"test": "9f2c…", "line": "rewriter", "count": 2}; None without a store
listed_use(store, evaluation)                 # the number that the store's own list gives this model

The list lies in the store of releases, where no run's folder is, by the digest of the test's questions: other answers
of a teacher in the same rows make no new test. A model keeps its number however often it is judged.
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
    """Put this model on the list of those that the test has judged; None where the run has no store.

    `keys` are the test's questions as near-duplicates are compared: normalised.
    """
    from qinglan.store import STORE_VARIABLE, open_store

    if not (address := os.environ.get(STORE_VARIABLE, "")):
        return None
    test = hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()
    about = {"at": f"{datetime.now(UTC):%FT%TZ}", "run": os.environ.get(RUN_VARIABLE, "")}
    count = open_store(address).prepare().add_use(test, line, model, about)
    return {"test": test, "line": line, "count": count}


def listed_use(store: "Store", evaluation: Mapping[str, Any]) -> int | None:
    """The number of this evaluation's model on the store's list, 0 where the list lacks it; None where its test is
    not on any list here, or was not counted."""
    from qinglan.evaluation.kinds import kind_of

    uses = evaluation.get("test_uses")
    if not isinstance(uses, Mapping):
        return None
    try:
        listed = store.uses(str(uses.get("test")), str(uses.get("line")))
        model = kind_of(evaluation, "evaluation.json").model(evaluation)
    except DataError:  # no digest, no line: the gate says so
        return None
    numbers = [number for number, name in listed.items() if name == model]
    return None if not listed else min(numbers, default=0)
