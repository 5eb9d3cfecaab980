"""A golden release is written beside those there are, on request, and never over one."""

from pathlib import Path

import pytest

from qinglan.errors import ConfigError
from qinglan.lineage.release.release_check import check_release
from tests.qinglan.lineage import golden_release


@pytest.mark.slow
def test_a_golden_release_is_written_on_request_and_never_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("--write-golden"):
        monkeypatch.setattr(golden_release, "GOLDEN", tmp_path)

    golden = golden_release.write_golden()

    assert {item.state for item in check_release(golden / "release", golden_release.trust(golden))} == {"verified"}
    assert not list(golden.rglob("*.pem"))
    with pytest.raises(ConfigError, match="what was signed stays as it was"):
        golden_release.write_golden()
