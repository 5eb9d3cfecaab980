"""Supervise the servers of the releases. Each server is a process that is restarted if it dies."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from qinglan.errors import OutageError, QinglanError
from qinglan.lineage.release.release_address import parse_release_uri
from qinglan.lineage.signing.keys import keys_folder
from qinglan.lineage.signing.trust import TRUST_FILE
from qinglan.lineage.trace.release_folder import MODEL, read_release_statement
from qinglan.processes.services import READY_SECONDS, STOP_SECONDS, end_with_parent
from standins.rollout_local.releases import fetch_release
from standins.rollout_local.service import ServerStatus

FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
"""Shortest and longest time in seconds before a dead server is restarted; it doubles each time, as in kubelet.
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy"""
LAST_BYTES = 400

ServerCommand = Callable[[Path], list[str]]
"""Function that returns the command of the server for a release's folder. The server prints its address first."""


def rewriter_command(release: Path) -> list[str]:
    """Build the command of serving.rewriter, which verifies the release, also signatures if a trust policy exists."""
    trust = keys_folder() / TRUST_FILE
    trusted = ["--trust", str(trust)] if trust.is_file() else []
    return [sys.executable, "-m", "serving.rewriter", "--model", str(release / MODEL), "--port", "0", *trusted]


class _RunningServer(NamedTuple):
    statuses: list[ServerStatus]
    """List with one item, the current status, which the task replaces."""
    task: "asyncio.Task[None]"


class ServerSupervisor:
    """Supervisor of the servers of one local InferenceService, by the URI of their release."""

    def __init__(self, folder: Path, command: ServerCommand = rewriter_command) -> None:
        self._folder, self._command = folder, command
        self._running: dict[str, _RunningServer] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def statuses(self) -> Mapping[str, ServerStatus]:
        for server in self._running.values():
            if server.task.done():
                server.task.result()  # a programming error in the task is raised here, not lost
        return {uri: server.statuses[0] for uri, server in self._running.items()}

    def reconcile(self, uris: Iterable[str], drained: Callable[[str], Awaitable[None]]) -> None:
        """Start the missing servers; stop servers that are not needed, once no request to them is under way."""
        required = set(uris)
        for uri in required - self._running.keys():
            status = [ServerStatus()]
            self._running[uri] = _RunningServer(status, asyncio.create_task(self._supervise(uri, status)))
        for uri in self._running.keys() - required:
            ending = asyncio.create_task(self._end(self._running.pop(uri), uri, drained))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        for server in self._running.values():
            server.task.cancel()
        tasks = [server.task for server in self._running.values()]
        await asyncio.gather(*tasks, *self._ending, return_exceptions=True)  # noqa: TID251 - each has its own end

    async def _end(self, server: _RunningServer, uri: str, drained: Callable[[str], Awaitable[None]]) -> None:
        await drained(uri)
        server.task.cancel()
        with suppress(asyncio.CancelledError):
            await server.task

    async def _supervise(self, uri: str, status: list[ServerStatus]) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                await self._run_server(uri, status)
                last = self._log(uri).read_bytes()[-LAST_BYTES:].decode(errors="replace")
                why = last.strip().rpartition("\n")[2] or "it ended without a word"
            except QinglanError as error:
                why = str(error)
            status[0] = ServerStatus(version=status[0].version, failed=why)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _run_server(self, uri: str, status: list[ServerStatus]) -> None:
        """Run the server process of a release from its start to its end."""
        release = await asyncio.to_thread(fetch_release, uri, self._folder)
        parts = read_release_statement(release).statement.made
        version = next((part.digest for part in parts if part.name == MODEL), "")[:12]
        with self._log(uri).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command(release), stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
                preexec_fn=end_with_parent,
            )  # fmt: skip
        try:
            assert process.stdout is not None
            async with asyncio.timeout(READY_SECONDS):
                line = await process.stdout.readline()
            if line.startswith(b"{"):
                status[0] = ServerStatus(version=version, url=next(iter(orjson.loads(line).values())))
            await process.stdout.read()  # until it ends: a full pipe would stop it
            await process.wait()
        except TimeoutError as error:
            raise OutageError(f"it was not ready within {READY_SECONDS:.0f} s, and was ended") from error
        finally:
            await _stop_process(process)

    def _log(self, uri: str) -> Path:
        logs = self._folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        return logs / f"{parse_release_uri(uri).digest[:12]}.log"


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM, so that the server answers its requests; kill its process group if it does not end in time."""
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
