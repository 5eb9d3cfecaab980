"""Ctrl-C and SIGTERM at any moment of a command: its code, and words instead of a traceback."""

import asyncio
import signal
import sys
from typing import Any, NoReturn

import pytest

from pipelines.execute.interrupts import TERMINATED
from tests.commands.conftest import Here


@pytest.mark.parametrize(
    ("words", "function", "to_go_on"),
    [
        (["run", "chengla", "--out", "a b"], "commands.run.run.run_pipeline", "qinglan run chengla --out 'a b'"),
        (["style", "run", "rows.xlsx"], "commands.run.run.run_style", "qinglan style run rows.xlsx"),
        (["plan", "fivedoctors"], "pipelines.checks.planned_run.check_readiness", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("code", "name"), [(130, "Ctrl-C"), (TERMINATED, "SIGTERM")])
def test_a_stopped_command_names_the_command_that_goes_on(
    words: list[str], function: str, to_go_on: str, code: int, name: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function, interrupt if name == "Ctrl-C" else lambda *_, **__: sys.exit(TERMINATED))

    ended = here(*words)

    assert ended.code == code
    if to_go_on:
        assert f"qinglan: Stopped by {name}. " in ended.errors
        assert "kept, and nothing is paid twice. To go on:" in ended.errors
        assert ended.errors.splitlines()[-1] == f"  {to_go_on}"
    else:
        assert ended.errors == f"qinglan: Stopped by {name}.\n"


def interrupt(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


async def terminate(*_: Any) -> None:
    """Receive SIGTERM inside of a task that nobody awaits any more."""

    async def receive() -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(60)

    await asyncio.gather(*(receive() for _ in range(3)))


def test_sigterm_in_an_event_loop_ends_the_command_without_asyncios_words(
    here: Here, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipelines.checks.rag.ask.measure", terminate)

    ended = here("check-rag", "http://127.0.0.1:1")

    message = "qinglan: Stopped by SIGTERM.\n"
    assert (ended.code, ended.out, ended.errors, caplog.messages) == (TERMINATED, "", message, [])
