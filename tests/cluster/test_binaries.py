"""The servers are built once, and what is missing for it is said."""

from pathlib import Path

import pytest

from qinglan.errors import ConfigError
from tests.cluster.binaries import PACKAGES, binary, kept_at


@pytest.mark.parametrize("name", PACKAGES)
def test_without_go_it_is_said_what_to_install(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ConfigError, match=r"no `go` on the PATH. Install Go \(1\.\d+"):
        binary(name)


@pytest.mark.parametrize("name", PACKAGES)
def test_another_version_is_another_binary(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).mkdir()
    for file in ("go.mod", "go.sum"):
        (tmp_path / name / file).write_text("another")
    pinned = kept_at(name)

    monkeypatch.setattr("tests.cluster.binaries.MODULES", tmp_path)

    assert kept_at(name) != pinned
