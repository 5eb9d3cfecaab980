"""verl's processes are forks of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from standins.verl_cpu import fork_server

ROOT = Path(__file__).parents[3]


def test_a_worker_is_forked_with_what_ray_says_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "/here")
    context = json.dumps({"env_vars": {"THERE": "${HERE}/there", "MORE": "1"}, "py_executable": "python"})
    argv = ["worker.py", "--port=1", f"--serialized-runtime-env-context={context}", "--language=PYTHON"]

    assert fork_server.worker_arguments(argv) == ["worker.py", "--port=1"]
    environment = fork_server.worker_environment(argv)
    assert (environment["HERE"], environment["THERE"], environment["MORE"]) == ("/here", "/here/there", "1")


FORK_SERVER = """
import os, socket, sys
from standins.verl_cpu import fork_server
path = os.environ[fork_server.SOCKET_VARIABLE]
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
listening.listen()
driver = os.getpid()
if os.fork() == 0:
    fork_server.serve_forks(listening, driver)
    os._exit(0)
for said in (b"", (100).to_bytes(4) + b"{"):
    with socket.socket(socket.AF_UNIX) as gone:
        gone.connect(path)
        gone.sendall(said)
fork_server.request_worker([sys.argv[1], "worked"])
"""


@pytest.mark.slow
def test_a_client_that_is_gone_does_not_end_the_fork_server(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import sys; print(sys.argv[1], flush=True)")
    output = subprocess.run(
        [sys.executable, "-c", FORK_SERVER, str(worker)], capture_output=True, text=True, cwd=ROOT, timeout=120,
        env={**os.environ, fork_server.SOCKET_VARIABLE: str(tmp_path / "fork-server")},
    )  # fmt: skip

    assert (output.stdout, output.returncode) == ("worked\n", 0), output.stderr
