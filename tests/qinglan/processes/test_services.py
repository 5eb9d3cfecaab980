"""A service that a run needs is awaited, explained when it does not come, and stopped."""

import socket
import sys
import threading
from pathlib import Path

import httpx
import psutil
import pytest

from qinglan.errors import ConfigError, OutageError
from qinglan.processes.services import UNASSIGNED_PORTS, free_port, run_service, start_command
from standins.samples import write_sample

pytestmark = pytest.mark.usefixtures("forks")


@pytest.mark.slow
def test_a_service_runs_for_as_long_as_the_block(tmp_path: Path) -> None:
    write_sample("fivedoctors", tmp_path, conversations=8, seed=0)
    arguments = ["--kb", f"fivedoctors={tmp_path / 'knowledge_base.jsonl'}", "--port", "0"]

    before = set(psutil.Process().children())
    with run_service("standins.teacher", arguments, tmp_path / "teacher.log") as url:
        assert [model["id"] for model in httpx.get(f"{url}/models").json()["data"]] == [
            "fivedoctors",
            "fivedoctors-examiner",
        ]
        children = set(psutil.Process().children()) - before

    assert children
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.slow
def test_a_worker_that_outlives_its_server_is_ended_with_it(tmp_path: Path) -> None:
    """It holds the server's pipe, on which the end would else wait for ever."""
    code = (
        "import os, time\n"
        "if os.fork() == 0: time.sleep(600)\n"
        'print(\'{"x": "http://127.0.0.1"}\', flush=True); time.sleep(600)'
    )
    ended = threading.Event()

    def run() -> None:
        with start_command([sys.executable, "-c", code], "x", tmp_path / "log") as url:
            url()
        ended.set()

    threading.Thread(target=run, daemon=True).start()

    assert ended.wait(60)


@pytest.mark.slow
def test_a_service_that_cannot_start_ends_with_its_own_error(tmp_path: Path) -> None:
    settings = tmp_path / "gateway.json"
    settings.write_text("{}")
    arguments = [
        "--config",
        str(settings),
        "--journal",
        str(tmp_path / "j"),
        "--retrieval-cache",
        str(tmp_path / "r"),
    ]

    with pytest.raises(ConfigError, match=r"(?s)gateway service did not start:.*teacher: Field required"):
        run_service("serving.gateway", arguments, tmp_path / "gateway.log").__enter__()


def test_a_service_that_is_not_ready_in_the_time_it_was_given_is_an_outage(tmp_path: Path) -> None:
    with pytest.raises(OutageError, match="rewriter service was not ready after 0 s"):
        run_service("serving.rewriter", ["--model", str(tmp_path), "--port", "0"], tmp_path / "log", 0.01).__enter__()


def test_a_free_port_is_none_that_an_outgoing_connection_may_get() -> None:
    ports = {free_port() for _ in range(50)}

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        assigned = {server.getsockname()[1], connection.getsockname()[1]}

    assert ports < set(UNASSIGNED_PORTS)
    assert not assigned & set(UNASSIGNED_PORTS)
