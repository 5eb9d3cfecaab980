"""Keys of the test's own, and what the register stage takes."""

from pathlib import Path

import pytest

from components.release.register.stage import Inputs
from tests.releases.registered_release import make_inputs, tiny_weights, use_keys


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return use_keys(tmp_path / "keys", monkeypatch)


@pytest.fixture
def inputs(keys: Path, tmp_path: Path) -> Inputs:
    return make_inputs(tmp_path, tiny_weights(tmp_path / "rl_model"))
