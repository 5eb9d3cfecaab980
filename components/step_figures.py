"""The figures of a step on KFP's page: ten at most, with names and units that a person reads.

    log_figures(metrics, counts._asdict(), {"rows": "rows read", "like_teacher": "rewrites like the teacher's, %"})

The step's record has all of them, by the names in the code.
"""

import math
from collections.abc import Mapping
from typing import Any

MOST = 10
"""The rows that KFP's page shows at once, sorted by name."""

HUNDREDTHS = (", %", ", points")
"""Units that show a share or a difference of shares times hundred."""


def log_figures(metrics: Any, values: Mapping[str, float | None], names: Mapping[str, str]) -> None:
    """Log each value that has a name; a value that could not be measured is left out."""
    for key, name in names.items():
        value = values.get(key)
        if value is not None and math.isfinite(value):  # KFP takes no NaN
            metrics.log_metric(name, _rounded(value * 100 if name.endswith(HUNDREDTHS) else value))


def _rounded(value: float) -> float:
    """Four significant digits of what was measured; what was counted stays whole."""
    return value if isinstance(value, int) else float(f"{value:.4g}")
