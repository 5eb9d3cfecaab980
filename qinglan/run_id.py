"""The run that this process is part of, from its environment."""

import os
import re

RUN_VARIABLE = "QINGLAN_RUN"
"""The run's id: on Kubeflow that of the run, here its folder's name."""


def run_id() -> str:
    """The run's id in letters that a URL and a label may hold."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", os.environ.get(RUN_VARIABLE, "")).lstrip("._-")[:128] or "run"
