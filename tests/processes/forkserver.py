"""Programs under test, forked from a process that has imported their libraries: a server of models in 0.5 s, not 6.

    process = subprocess.Popen(forked("serving.rewriter", "--model", "..."))

instead of [sys.executable, "-m", "serving.rewriter", ...]. What is started is a small client: it asks the fork server
for a fork that runs the module with the client's arguments, environment, folder and streams; passes SIGTERM and
SIGINT on; and ends as the fork ends. When the client is killed, the fork server kills the fork.

That a program starts without any of this, as an operator starts it, is tested in
serving/rewriter/test_with_rag.py, and by tests/commands/test_company_to_report.py.
"""

import array
import atexit
import contextlib
import functools
import gc
import hashlib
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

MODELS = (
    "torch", "torch._dynamo", "transformers.models.auto.modeling_auto", "transformers.generation.utils",
    "transformers.models.auto.tokenization_auto", "transformers.models.qwen3.modeling_qwen3", "kserve", "fastapi",
    "uvicorn", "pandas", "sklearn.metrics", "httpx", "prometheus_client", "pydantic", "orjson",
    "openai", "yaml", "rich.console", "kfp.dsl.executor", "peft", "datasets", "openpyxl", "qinglan.rewriter.model",
)  # fmt: skip
"""Modules that the servers of models and the steps of a run import: one fork server has them for both."""

GATEWAY = (
    "openai", "fastapi", "uvicorn", "httpx", "prometheus_client", "pydantic", "orjson", "yaml", "rich.console",
    "typer", "kfp.local", "kfp.dsl.executor", "openpyxl", "pandas", "pyarrow.parquet", "numpy",
    "commands.cli", "commands.run.run", "pipelines.execute.execution", "serving.gateway.server", "serving.rag.server",
    "standins.teacher.__main__", "components.data.validate.stage", "components.data.augment.stage",
)  # fmt: skip
"""Modules of the gateway, the command and its other servers, ours too: importing is half of a start. Their forks copy
a tenth of the memory."""

KILL = signal.SIGUSR1
"""Send this in place of SIGKILL where nothing of the fork may be left when its client has ended."""
SCRATCH_VARIABLE = "QINGLAN_SCRATCH"
WIDE_VARIABLE = "QINGLAN_TEST_WIDE_LIMITS"  # of tests/wide_limits; a client is started without the tests' folder
LONGEST_NAME = 240
"""Longest name of a file without content: Linux takes 249 bytes."""

SERVERS: list["subprocess.Popen[bytes]"] = []
"""Fork servers that this process has started."""

PASSED_ON = {signal.SIGTERM: signal.SIGTERM, signal.SIGINT: signal.SIGINT, KILL: signal.SIGKILL}


def forked(
    module: str, *arguments: str, libraries: tuple[str, ...] = MODELS, python: str = sys.executable
) -> list[str]:
    """Command that runs a module in a fork. All workers of a run of the tests share a fork server, which ends with
    that run."""
    return [sys.executable, "-ES", __file__, socket_path(libraries, python), module, *arguments]


@functools.cache
def socket_path(libraries: tuple[str, ...], python: str = sys.executable) -> str:
    """Return the socket of a fork server of this Python with these libraries; the first call of a run of the tests
    starts it."""
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    begun = Path(f"/proc/{owner}/stat").read_text().rpartition(")")[2].split()[19]  # a process's id comes again
    key = hashlib.sha256(" ".join((str(owner), begun, python, *libraries)).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"forks-{key}" / "socket"
    try:
        path.parent.mkdir(mode=0o700)
    except FileExistsError:  # another worker's test was first
        assert path.parent.stat().st_uid == os.getuid()
    else:
        command = [python, "-m", "tests.processes.forkserver", str(path), str(owner), *libraries]
        folder = Path(__file__).parents[2]
        environment = {name: value for name, value in os.environ.items() if name != SCRATCH_VARIABLE}
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, cwd=folder, env=environment, start_new_session=True
        )
        SERVERS.append(server)  # of no test, although it begins in one's environment
    return str(path)


def connect(path: str) -> socket.socket:
    """The socket is there once the libraries are imported; its folder goes where they cannot be."""
    import time

    deadline = time.monotonic() + 300
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
            return connection
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            if time.monotonic() > deadline or not Path(path).parent.is_dir():
                raise
            time.sleep(0.02)


def client(path: str, argv: list[str]) -> NoReturn:
    """Ask for a fork, and end as it ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    connection = connect(path)
    streams = array.array("i", [0, 1, 2])
    request = {"argv": argv, "environment": dict(os.environ), "folder": str(Path.cwd()), "umask": _umask()}
    request["hears_ctrl_c"] = signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    content = json.dumps(request).encode()
    connection.sendmsg([len(content).to_bytes(8)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    connection.sendall(content)
    fork = int.from_bytes(_read(connection, 8) or _forkserver_gone())
    Path("/proc/self/comm").write_text(f"fork {fork}")
    for number in range(3):
        os.close(number)  # whoever reads them must see the fork's end, not ours

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(fork, PASSED_ON[signal.Signals(number)])

    for received in PASSED_ON:
        signal.signal(received, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = os.waitstatus_to_exitcode(int.from_bytes(_read(connection, 8) or _forkserver_gone()))
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def fork_of(client: int) -> int:
    """Process id of a client's fork."""
    return int(Path(f"/proc/{client}/comm").read_text().removeprefix("fork "))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _forkserver_gone() -> NoReturn:
    """It takes its forks along."""
    os._exit(70)


def _read(connection: socket.socket, size: int) -> bytes:
    """So many bytes; none where the other end is gone."""
    content = b""
    while len(content) < size:
        read = connection.recv(size - len(content))
        if not read:
            return b""
        content += read
    return content


class ForkServer:
    """Forks on request until the run of the tests has ended."""

    def __init__(self, path: Path, owner: int) -> None:
        self._path, self._listening = path, socket.socket(socket.AF_UNIX)
        self._owner = os.pidfd_open(owner)
        self._listening.bind(str(path))
        self._listening.listen(64)
        self._forks: dict[int, socket.socket] = {}
        self._events = selectors.DefaultSelector()
        # A child's end interrupts select by writing to this pipe.
        self._ended, ended = os.pipe()
        os.set_blocking(ended, False)
        os.set_blocking(self._ended, False)
        signal.set_wakeup_fd(ended)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for source in (self._listening, self._ended, self._owner):
            self._events.register(source, selectors.EVENT_READ)

    def serve(self) -> None:
        """Fork until the owner is gone; no fork outlives it."""
        while True:
            sources = [key.fileobj for key, _ in self._events.select()]
            if self._owner in sources:
                break
            for source in sources:
                if source is self._listening:
                    self._fork(self._listening.accept()[0])
                elif source == self._ended:
                    os.read(self._ended, 4096)
                    self._report_ends()
                else:
                    self._client_gone(source)
        for fork in self._forks:
            _kill_group(fork)
        self._path.unlink()
        self._path.parent.rmdir()

    def _fork(self, connection: socket.socket) -> None:
        size, streams, _, _ = socket.recv_fds(connection, 8, 3)
        content = _read(connection, int.from_bytes(size))
        if not content:  # a client that was killed before it could ask
            connection.close()
        elif fork := os.fork():
            self._forks[fork] = connection
            self._events.register(connection, selectors.EVENT_READ)
            with contextlib.suppress(OSError):
                connection.sendall(fork.to_bytes(8))
        else:
            _become(json.loads(content), streams)
        for stream in streams:
            os.close(stream)

    def _report_ends(self) -> None:
        while self._forks:
            fork, status = os.waitpid(-1, os.WNOHANG)
            if not fork:
                return
            connection = self._forks.pop(fork)
            with contextlib.suppress(OSError):  # its client was killed
                connection.sendall(status.to_bytes(8))
            with contextlib.suppress(KeyError):
                self._events.unregister(connection)
            connection.close()

    def _client_gone(self, source: Any) -> None:
        """A client that says nothing more was killed: so is its fork."""
        fork = next((fork for fork, connection in self._forks.items() if connection is source), None)
        if fork is not None:
            self._events.unregister(source)
            _kill_group(fork)


def _kill_group(fork: int) -> None:
    """Kill a fork and what it has started: a vLLM's engine core would keep gigabytes for an hour."""
    with contextlib.suppress(ProcessLookupError):  # not yet a group of its own, or gone
        os.killpg(fork, signal.SIGKILL)
    os.kill(fork, signal.SIGKILL)


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """The rest of this process's life: the program that was asked for."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # What a shell starts in the background ignores Ctrl-C: the fork server may, where the client does not.
        signal.signal(signal.SIGINT, signal.default_int_handler if request["hears_ctrl_c"] else signal.SIG_IGN)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 256)
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None  # a library that was imported may have asked for this process's
        _carry(request["environment"])
        os.chdir(request["folder"])
        os.umask(request["umask"])
        _open_standard_streams()
        if WIDE_VARIABLE in os.environ:
            from tests.wide_limits.sitecustomize import widen

            widen()
        sys.argv = ["-m", *request["argv"][1:]]
        runpy.run_module(request["argv"][0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()  # temporary folders go, as when a Python of its own ends
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
        finally:
            os._exit(code)


def _open_standard_streams() -> None:
    """Text over the descriptors, as a Python opens it at its start: the fork server's may be a file, ours a pipe."""
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False))
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        stream = io.TextIOWrapper(
            os.fdopen(number, "wb", closefd=False),
            before.encoding,
            before.errors,
            line_buffering=number == 2 or os.isatty(number),
            write_through="PYTHONUNBUFFERED" in os.environ,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _carry(environment: dict[str, str]) -> None:
    """Let /proc name the training that this fork and all its forks belong to: their `environ` is the fork server's.

    An open file without content bears the variable as its name; tests/processes/ctrl_c.py looks for it.
    """
    if scratch := environment.get(SCRATCH_VARIABLE):
        os.memfd_create(f"{SCRATCH_VARIABLE}={scratch}"[:LONGEST_NAME])


def main() -> None:
    gc.disable()  # what an import makes stays: to look for garbage meanwhile takes a quarter of the time
    try:
        for name in sys.argv[3:]:
            importlib.import_module(name)
    except BaseException:
        Path(sys.argv[1]).parent.rmdir()
        raise
    gc.collect()
    gc.freeze()  # the collector would write to every page, and none would stay shared
    gc.enable()
    ForkServer(Path(sys.argv[1]), int(sys.argv[2])).serve()
    os._exit(0)


if __name__ == "__main__":
    if __spec__ is None:  # started by its path: a client
        client(sys.argv[1], sys.argv[2:])
    main()
