"""Real servers on loopback, each on a free port with keys of its own, for as long as a block."""

import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from qinglan.errors import OutageError
from qinglan.processes.services import end_with_parent
from tests.cluster.build.binaries import binary
from tests.cluster.plane.ports import free_port

READY_SECONDS = 300.0
STOP_SECONDS = 15.0


class Minio(NamedTuple):
    endpoint: str
    key: str
    secret: str
    process: "subprocess.Popen[bytes]"

    @property
    def environment(self) -> dict[str, str]:
        """Environment that `open_store` reads."""
        return {
            "QINGLAN_S3_ENDPOINT": self.endpoint, "AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret,
        }  # fmt: skip


@contextmanager
def minio(folder: Path, again: Minio | None = None) -> Iterator[Minio]:
    """A MinIO server that keeps its objects in a folder; started again, it has the keys it had."""
    program, port, console = binary("minio"), free_port(), free_port()
    key, secret = (again.key, again.secret) if again else (secrets.token_hex(8), secrets.token_hex(16))
    command = [str(program), "server", "--quiet", "--address", f"127.0.0.1:{port}"]
    command += ["--console-address", f"127.0.0.1:{console}", str(folder / "objects")]
    settings = {"MINIO_ROOT_USER": key, "MINIO_ROOT_PASSWORD": secret, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
    endpoint = f"http://127.0.0.1:{port}"
    with server(command, folder, f"{endpoint}/minio/health/ready", {"HOME": str(folder), **settings}) as process:
        running = Minio(endpoint, key, secret, process)
        _await_keys(running)
        yield running


@contextmanager
def server(
    command: list[str], folder: Path, ready: str, settings: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server for as long as a block, from when it answers at `ready`. Its output goes to a log in `folder`."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("ab") as log_file:
        process = subprocess.Popen(
            command, cwd=folder, env={"PATH": "/usr/bin:/bin", "GOGC": "50", **settings}, stdout=log_file,
            stderr=log_file, start_new_session=True, preexec_fn=end_with_parent,
        )  # fmt: skip
    try:
        await_answer(ready, process, log)
        yield process
    finally:
        stop(process)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """By its own id: first asked, then killed."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_keys(server: Minio) -> None:
    """Until it knows its own keys: it says that it is ready before, and then, that one should wait for a minute."""
    from minio import Minio as Client
    from minio.error import S3Error
    from urllib3 import PoolManager

    address = server.endpoint.removeprefix("http://")
    client = Client(address, server.key, server.secret, secure=False, http_client=PoolManager(retries=False))
    end = time.monotonic() + READY_SECONDS
    while True:
        try:
            client.list_buckets()
            return
        except S3Error:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def await_answer(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(url, timeout=5, trust_env=False, verify=False).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise OutageError(f"{url}: no server there, it ended with {process.poll()}:\n{log.read_text(errors='replace')}")
