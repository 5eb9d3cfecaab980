"""Id of the run that this process belongs to, read from the environment."""

import os
import re

RUN_VARIABLE = "QINGLAN_RUN"
"""Environment variable with the run's id: on Kubeflow the KFP run's id, on a laptop the name of the run's folder."""


def run_id() -> str:
    """Return the run's id, with `-` for characters that a URL or a label may not hold; `run` if the environment names
    no id."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", os.environ.get(RUN_VARIABLE, "")).lstrip("._-")[:128] or "run"
