"""Take the limits on gates away in this process, so that a model of a few steps' training is promoted.

For tests and rehearsals of what comes after a gate; the product has no setting for it. A Python with this folder in
PYTHONPATH loads this file as it starts; a fork of tests/processes/forkserver.py does where WIDE_VARIABLE is set.
"""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WIDE_VARIABLE = "QINGLAN_TEST_WIDE_LIMITS"


def widen() -> None:
    """Compare no setting with its limit from now on."""
    from qinglan.evaluation.gates import gate_limits

    gate_limits._stricter = lambda field, value, limit: value


@contextmanager
def wide_limits() -> Iterator[None]:
    """Compare no setting with its limit inside of this block."""
    from qinglan.evaluation.gates import gate_limits

    before = gate_limits._stricter
    widen()
    try:
        yield
    finally:
        gate_limits._stricter = before


if __name__ == "sitecustomize":
    sys.path.append(str(Path(__file__).parents[2]))
    if importlib.util.find_spec("pydantic"):  # an environment without it runs no gate
        widen()
