"""verl with its ten processes forked from one: torch, transformers and the rest are imported once, not ten times.

    python -m standins.verl_cpu.fork_server ARGUMENTS OF verl.trainer.main_ppo

This process imports, forks a quiet copy of itself, the nest, and goes on as verl's driver. Ray is told to set its
workers up with this file instead of with its own (patches.py), which would import Ray for that alone: a small process
asks the nest for a fork, and stays until that has ended. Ray and verl themselves are imported by each: Ray reads its
environment as it is loaded, and beside the rest the two are quick.
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
from pathlib import Path
from typing import Any

SOCKET_VARIABLE = "QINGLAN_NEST"
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
"""What Ray says to the file that sets a worker up, and not to the worker."""


def main() -> None:
    """Nest and driver, or, where Ray calls it with a worker to start, the small process."""
    if len(sys.argv) > 1 and sys.argv[1].endswith(".py"):
        request_worker(sys.argv[1:])
    else:
        run_driver()


def run_driver() -> None:
    import importlib
    import tempfile

    for name in PRELOADED_MODULES:
        importlib.import_module(name)
    assert "ray" not in sys.modules, "the workers' Ray would have this process's environment"
    listening = socket.socket(socket.AF_UNIX)
    os.environ[SOCKET_VARIABLE] = str(Path(tempfile.gettempdir()) / "nest")  # for the workers that Ray sets up
    listening.bind(os.environ[SOCKET_VARIABLE])
    listening.listen(64)
    gc.collect()
    gc.freeze()  # else the collector would write to every page, and none stay shared
    driver = os.getpid()
    _end_with_parent()
    if os.fork() == 0:
        serve_forks(listening, driver)
        os._exit(0)
    listening.close()
    runpy.run_module(DRIVER, run_name="__main__", alter_sys=True)


def _end_with_parent() -> None:
    """A stage that is killed takes its training along."""
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def serve_forks(listening: socket.socket, driver: int) -> None:
    """Fork a worker for each ask, until the driver is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    listening.settimeout(1.0)
    while os.getppid() == driver:
        with contextlib.suppress(TimeoutError, ConnectionError):
            asking, _ = listening.accept()
            asking.settimeout(None)
            told, streams = _receive(asking)
            if os.fork() == 0:
                listening.close()
                run_worker(told, streams)
            for stream in streams:
                os.close(stream)
            asking.close()  # the worker has its own; when that closes, the small process sees its end


def run_worker(told: dict[str, Any], streams: list[int]) -> None:
    """The rest of this process's life: the worker that was asked for."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(told["environment"])
        os.chdir(told["folder"])
        sys.argv = told["argv"]
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
    """Have the nest fork the worker, and stay for as long as it lives."""
    with _connected(os.environ[SOCKET_VARIABLE]) as nested:
        worker = {"argv": worker_arguments(argv), "environment": worker_environment(argv), "folder": str(Path.cwd())}
        told = json.dumps(worker).encode()
        streams = array.array("i", [0, 1, 2])
        nested.sendmsg([len(told).to_bytes(4)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        nested.sendall(told)
        nested.recv(1)


def worker_arguments(argv: list[str]) -> list[str]:
    return [word for word in argv if not word.startswith((CONTEXT, LANGUAGE))]


def worker_environment(argv: list[str]) -> dict[str, str]:
    """Ours, and what the job's runtime environment adds."""
    added: dict[str, str] = {}
    for word in argv:
        if word.startswith(CONTEXT):
            added |= json.loads(word.removeprefix(CONTEXT)).get("env_vars") or {}
    return {**os.environ, **{name: os.path.expandvars(value) for name, value in added.items()}}


def _receive(asking: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, streams, _, _ = socket.recv_fds(asking, 4, 3)
    told, read = b"", size
    while read and len(told) < int.from_bytes(size):
        read = asking.recv(LARGEST)
        told += read
    if not read:
        raise ConnectionError("whoever asked is gone")
    values: dict[str, Any] = json.loads(told)
    return values, streams


def _connected(path: str) -> socket.socket:
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        nested = socket.socket(socket.AF_UNIX)
        try:
            nested.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            nested.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return nested


if __name__ == "__main__":
    main()
