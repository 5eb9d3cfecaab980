"""Wheels that a small tree carries: those of packages that the machine lacks are unpacked and imported."""

import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
CARRIED, UNPACKED = ROOT / "wheels", ROOT / "wheels" / "unpacked"
MODULES = {"scikit_learn": "sklearn"}
"""By a wheel's name, the module in it, where the two differ."""


def use_carried_wheels() -> list[str]:
    """Unpack the wheels of modules that cannot be imported; the names of those modules."""
    missing = []
    for wheel in sorted(CARRIED.glob("*.whl")):
        name = wheel.name.partition("-")[0]
        module = MODULES.get(name, name)
        if find_spec(module) is None:
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(UNPACKED)
            missing.append(module)
    if UNPACKED.is_dir():
        sys.path.append(str(UNPACKED))
    return missing
