"""python -m standins.rollout_local.serve FOLDER --port 8600: what a folder's service.json asks for, served."""

import argparse
import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from qinglan.errors import ConflictError, OutageError, QinglanError
from qinglan.terminal import say, say_error
from standins.rollout_local.knative import needed_releases, reconcile_status
from standins.rollout_local.router import Backend, Backends, Router
from standins.rollout_local.service import (
    SERVICE_NAME,
    LocalRevision,
    ServiceStatus,
    desired_model,
    parse_status,
    service_files,
)
from standins.rollout_local.supervisor import ServerCommand, ServerSupervisor, rewriter_command

RECONCILE_SECONDS = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m standins.rollout_local.serve", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8600, help="0 takes a free one")
    given = parser.parse_args()
    try:
        asyncio.run(serve(given.folder, given.port))
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)


async def serve(
    folder: Path, port: int, command: ServerCommand = rewriter_command, deadline_seconds: float = 10.0
) -> None:
    """Until SIGTERM: first the last user is answered, then the servers end."""
    from serving.http_server import listen, log_to_stderr, serve_app

    log_to_stderr()
    service_files(folder).read(SERVICE_NAME)
    router, servers, listening = (
        Router(deadline_seconds),
        ServerSupervisor(folder, command),
        listen("127.0.0.1", port),
    )
    keeping = asyncio.create_task(
        _reconcile_loop(folder, router, servers, f"http://127.0.0.1:{listening.getsockname()[1]}")
    )
    keeping.add_done_callback(_end_with_error)
    try:
        await serve_app("rollout_local.serve", router.app, listening)
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        await servers.close()
        await router.aclose()


async def _reconcile_loop(folder: Path, router: Router, servers: ServerSupervisor, url: str) -> None:
    """Looks at what is asked and at what runs, all the time; the router turns before the file says that it has."""
    objects = service_files(folder)
    while True:
        with suppress(ConflictError, OutageError):  # somebody asked for something else meanwhile: look again
            one = objects.read(SERVICE_NAME)
            asked, before = desired_model(one), parse_status(one)
            status = reconcile_status(before, asked, one["metadata"]["generation"], servers.seen())
            status = status.model_copy(update={"url": url})
            router.turn(choose_backends(status))
            servers.keep(needed_releases(status, asked), router.drained)
            if status != before:
                objects.replace(SERVICE_NAME, {**one, "status": status.model_dump(mode="json")})
        await asyncio.sleep(RECONCILE_SECONDS)


def choose_backends(status: ServiceStatus) -> Backends | None:
    """What is rolled out has the rest of the traffic, and answers what a canary fails."""
    shares = {status.named(name): share for name, share in status.shares.items()}
    rolled_out, newest = status.named(status.rolled_out), status.named(status.latest_ready)
    if not shares or rolled_out is None:
        return None
    stable, canary = _backend(status, rolled_out, shares.get(rolled_out, 0)), None
    for made, share in shares.items():
        if made is not None and made.uri != rolled_out.uri:
            canary = _backend(status, made, share)
    tagged = _backend(status, newest, 0) if newest and newest.uri != rolled_out.uri else None
    return Backends(stable, canary, tagged)


def _backend(status: ServiceStatus, made: LocalRevision, share: int) -> Backend:
    seen = status.seen(made.uri)
    return Backend(made.uri, seen.version, seen.url, share)


def _end_with_error(task: "asyncio.Task[None]") -> None:
    """A file that nobody can read any more ends the server: it would serve what nobody asked for."""
    import os
    import signal

    if not task.cancelled() and task.exception():
        say(task.exception(), to=sys.stderr)
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
