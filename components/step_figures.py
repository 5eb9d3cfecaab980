"""Show the figures of a step on KFP's page: at most ten, with names and units for people.

    log_figures(metrics, counts._asdict(), {"rows": "rows read", "like_teacher": "rewrites like the teacher's, %"})

The step's record has all figures, under their names in the code.
"""

import math
from collections.abc import Mapping
from typing import Any

MOST = 10
"""Number of rows that KFP's page shows at once, sorted by name."""

HUNDREDTHS = (", %", ", points")
"""Units of shares and of differences of shares, which are shown times hundred."""


def log_figures(metrics: Any, values: Mapping[str, float | None], names: Mapping[str, str]) -> None:
    """Log each value that has a name; a value that could not be measured is left out."""
    for key, name in names.items():
        value = values.get(key)
        if value is not None and math.isfinite(value):  # KFP takes no NaN
            metrics.log_metric(name, _rounded(value * 100 if name.endswith(HUNDREDTHS) else value))


def _rounded(value: float) -> float:
    """Round a measured value to four significant digits; a count stays whole."""
    return value if isinstance(value, int) else float(f"{value:.4g}")
