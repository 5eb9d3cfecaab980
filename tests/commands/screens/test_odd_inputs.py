"""Every odd input gets its own message: what is wrong, where, and the next step; nothing is paid for it."""

from pathlib import Path

import pytest

from tests.commands.conftest import Here
from tests.commands.screens.odd_inputs import ODD_INPUTS, Odd
from tests.servers.echo_servers import Scripted, running


@pytest.mark.parametrize("odd", ODD_INPUTS, ids=[odd.name for odd in ODD_INPUTS])
def test_an_odd_input_gets_its_own_message(
    odd: Odd, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "127.0.0.1")
    odd.build(tmp_path)
    service = Scripted(*odd.replies)
    with running(service) as url:
        for path in tmp_path.rglob("mine.yaml"):
            path.write_text(path.read_text(encoding="utf-8").replace("URL", url), encoding="utf-8")
        ended = here(*odd.command.replace("URL", url).split())
    shown = " ".join((ended.out + ended.errors).split())

    assert [message for message in odd.messages if message not in shown] == [], shown
    assert ended.code == odd.code, shown
    assert "Traceback" not in shown and (odd.code == 0 or not (tmp_path / "runs").exists())
    if not odd.command.startswith(("check-rag", "doctor")):
        assert not [path for path, _, _ in service.requests if "completions" in path]


def test_there_are_sixty_and_each_has_a_name() -> None:
    assert len({odd.name for odd in ODD_INPUTS}) == len(ODD_INPUTS) >= 60
    assert all(odd.messages for odd in ODD_INPUTS)
