"""A real OpenSearch node on loopback, in a folder of its own, for as long as a block.

with node(folder) as server:
    httpx.get(server.url)
    server.kill()       # as a power cut does
    server.start()      # the same address, and what it had acknowledged
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from qinglan.processes.services import end_with_parent
from tests.cluster.build.jars import fetch
from tests.cluster.plane.ports import free_port
from tests.cluster.servers import await_answer, stop

HEAP = "512m"


class Node:
    """One node: its address stays the same when it is started again."""

    def __init__(self, folder: Path, heap: str = HEAP, options: Sequence[str] = ()) -> None:
        self.folder, self.heap, self.options = folder, heap, options
        self.http, self.transport = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http}"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """And wait until it answers and has its indexes back."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        for name in ("config", "data"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        command = [
            "java", f"-Xms{self.heap}", f"-Xmx{self.heap}", "-XX:+UseSerialGC", *self.options,
            "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", fetch().classpath, "OneNode",
            str(self.folder), str(self.http), str(self.transport),
        ]  # fmt: skip
        with (self.folder / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=end_with_parent, env={"HOME": str(self.folder), "PATH": os.environ["PATH"]},
            )  # fmt: skip

    def await_ready(self) -> None:
        assert self.process is not None
        # One node has no second place for a replica, so its health is never green.
        health = f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s"
        await_answer(health, self.process, self.folder / "node.log")

    def kill(self) -> None:
        """At once, as a power cut does: what it had not acknowledged is lost."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.process is not None:
            stop(self.process)


@contextmanager
def node(folder: Path, heap: str = HEAP, options: Sequence[str] = ()) -> Iterator[Node]:
    server = Node(folder, heap, options)
    try:
        server.start()
        yield server
    finally:
        server.end()
