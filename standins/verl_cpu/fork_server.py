"""Run verl with its ten processes forked from one process, so that torch and other libraries are imported only once.

    python -m standins.verl_cpu.fork_server ARGUMENTS OF verl.trainer.main_ppo

This process imports the libraries, forks the fork server, and becomes verl's driver. patches.py makes Ray set up its
workers with this file instead of Ray's own (ray/_private/workers/setup_worker.py): a small process requests a fork
from the fork server, and waits until the fork has ended. Ray and verl are imported in each process, because Ray reads
its environment when it is imported. Both load quickly compared with the rest.
"""

import array
import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOCKET_VARIABLE = "QINGLAN_FORK_SERVER"
PRELOAD_VARIABLE = "QINGLAN_FORK_PRELOAD"
"""Environment variable with the names of more modules to import once, with commas between them."""

DRIVER = "verl.trainer.main_ppo"
PRELOADED_MODULES = (
    "torch", "torch._dynamo", "torch.distributed.fsdp", "torch.utils.tensorboard", "tensordict", "torchdata",
    "torchdata.stateful_dataloader", "transformers", "transformers.generation", "accelerate", "peft",
    "transformers.models.qwen3.modeling_qwen3", "datasets", "pandas", "pyarrow.parquet", "hydra", "omegaconf", "zmq",
    "qinglan.reward.reward_function",
)  # fmt: skip
LARGEST = 1 << 20
CONNECT_SECONDS = 60.0
CONTEXT, LANGUAGE = "--serialized-runtime-env-context=", "--language="
"""Arguments that Ray passes to the file that sets up a worker; they are removed for the worker itself."""


def main() -> None:
    """Run fork server and driver. If Ray calls this file with a worker's script, request a fork for the worker."""
    if len(sys.argv) > 1 and sys.argv[1].endswith(".py"):
        request_worker(sys.argv[1:])
    else:
        run_driver()


def run_driver() -> None:
    import tempfile

    os.environ[SOCKET_VARIABLE] = str(Path(tempfile.gettempdir()) / "fork-server")  # for the workers that Ray sets up
    listening = listen_with_modules(os.environ[SOCKET_VARIABLE])
    driver = os.getpid()
    _end_with_parent()
    if os.fork() == 0:
        serve_forks(listening, driver)
        os._exit(0)
    listening.close()
    runpy.run_module(DRIVER, run_name="__main__", alter_sys=True)


def listen_with_modules(path: str) -> socket.socket:
    import_libraries()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    gc.collect()
    # Else the garbage collector writes to every page, and forks share none:
    # https://docs.python.org/3.11/library/gc.html#gc.freeze
    gc.freeze()
    return listening


def import_libraries() -> None:
    import importlib

    further = filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(","))
    with _without_ray():
        for name in (*PRELOADED_MODULES, *further):
            importlib.import_module(name)


@contextlib.contextmanager
def _without_ray() -> Iterator[None]:
    """Prevent the import of Ray within the block. Otherwise Ray would have this process's environment in workers."""
    sys.modules["ray"] = None  # type: ignore[assignment]
    yield
    del sys.modules["ray"]


def _end_with_parent() -> None:
    import ctypes

    # PR_SET_PDEATHSIG: a training must not outlive its stage. https://man7.org/linux/man-pages/man2/prctl.2.html
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def serve_forks(listening: socket.socket, driver: int) -> None:
    """Fork a worker for each request, until the driver has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended workers: no code here waits for them
    listening.settimeout(1.0)
    while os.getppid() == driver:
        with contextlib.suppress(TimeoutError, ConnectionError):
            connection, _ = listening.accept()
            connection.settimeout(None)
            request, streams = _receive(connection)
            if os.fork() == 0:
                listening.close()
                run_worker(request, streams)
            for stream in streams:
                os.close(stream)
            connection.close()  # the worker has its own copy: when the worker ends, the small process ends


def run_worker(request: dict[str, Any], streams: list[int]) -> None:
    """Run the requested worker in this process, and end the process with the worker's exit code."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        sys.argv = request["argv"]
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def request_worker(argv: list[str]) -> None:
    """Request a worker from the fork server, and return when it has ended."""
    with _connected(os.environ[SOCKET_VARIABLE]) as connection:
        worker = {"argv": worker_arguments(argv), "environment": worker_environment(argv), "folder": str(Path.cwd())}
        request = json.dumps(worker).encode()
        # The worker writes to this process's own streams: descriptors are sent as SCM_RIGHTS.
        # https://man7.org/linux/man-pages/man7/unix.7.html
        streams = array.array("i", [0, 1, 2])
        connection.sendmsg([len(request).to_bytes(4)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        connection.sendall(request)
        connection.recv(1)


def worker_arguments(argv: list[str]) -> list[str]:
    return [word for word in argv if not word.startswith((CONTEXT, LANGUAGE))]


def worker_environment(argv: list[str]) -> dict[str, str]:
    """Merge this process's environment with the variables of the job's runtime environment."""
    added: dict[str, str] = {}
    for word in argv:
        if word.startswith(CONTEXT):
            added |= json.loads(word.removeprefix(CONTEXT)).get("env_vars") or {}
    return {**os.environ, **{name: os.path.expandvars(value) for name, value in added.items()}}


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    body, read = b"", size
    while read and len(body) < int.from_bytes(size):
        read = connection.recv(LARGEST)
        body += read
    if not read:
        raise ConnectionError("the process that requested a worker is gone")
    values: dict[str, Any] = json.loads(body)
    return values, streams


def _connected(path: str) -> socket.socket:
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return connection


if __name__ == "__main__":
    main()
