"""python -m standins.rollout_local.serve FOLDER --port 8600: serve the releases of FOLDER/service.json."""

import argparse
import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from qinglan.errors import ConflictError, OutageError
from qinglan.terminal import say
from serving.programs import exit_on_error
from standins.rollout_local.knative import needed_releases, reconcile_status
from standins.rollout_local.object_files import ObjectFiles
from standins.rollout_local.router import Backend, Backends, Router
from standins.rollout_local.service import (
    SERVICE_NAME,
    LocalRevision,
    ServiceStatus,
    desired_model,
    parse_status,
)
from standins.rollout_local.supervisor import ServerCommand, ServerSupervisor, rewriter_command

RECONCILE_SECONDS = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m standins.rollout_local.serve", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8600, help="0 takes a free one")
    options = parser.parse_args()
    with exit_on_error():
        asyncio.run(serve(options.folder, options.port))


async def serve(
    folder: Path, port: int, command: ServerCommand = rewriter_command, deadline_seconds: float = 10.0
) -> None:
    """Serve until SIGTERM. The last requests are answered before the servers are stopped."""
    from serving.http_server import listen, log_to_stderr, serve_app

    log_to_stderr()
    ObjectFiles(folder).read(SERVICE_NAME)
    router, servers, listening = (
        Router(deadline_seconds),
        ServerSupervisor(folder, command),
        listen("127.0.0.1", port),
    )
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    reconciling = asyncio.create_task(_reconcile_loop(folder, router, servers, url))
    reconciling.add_done_callback(_end_with_error)
    try:
        await serve_app("rollout_local.serve", router.app, listening)
    finally:
        reconciling.cancel()
        with suppress(asyncio.CancelledError):
            await reconciling
        await servers.close()
        await router.aclose()


async def _reconcile_loop(folder: Path, router: Router, servers: ServerSupervisor, url: str) -> None:
    """Reconcile the servers and the router with the spec in a loop.

    The router is changed before the status, so that the status is always true.
    """
    objects = ObjectFiles(folder)
    while True:
        with suppress(ConflictError, OutageError):  # the spec changed meanwhile: read it again
            service = objects.read(SERVICE_NAME)
            desired, before = desired_model(service), parse_status(service)
            status = reconcile_status(before, desired, service["metadata"]["generation"], servers.statuses())
            status = status.model_copy(update={"url": url})
            router.set_backends(choose_backends(status))
            servers.reconcile(needed_releases(status, desired), router.wait_until_idle)
            if status != before:
                objects.replace(SERVICE_NAME, {**service, "status": status.model_dump(mode="json")})
        await asyncio.sleep(RECONCILE_SECONDS)


def choose_backends(status: ServiceStatus) -> Backends | None:
    """Choose the backends by the shares in the status; None if there are none.

    The rolled-out revision is the stable backend, which also answers requests that fail at the canary.
    """
    shares = {status.find_revision(name): share for name, share in status.shares.items()}
    rolled_out = status.find_revision(status.rolled_out)
    if not shares or rolled_out is None:
        return None
    stable, canary = _backend(status, rolled_out, shares.get(rolled_out, 0)), None
    for revision, share in shares.items():
        if revision is not None and revision.uri != rolled_out.uri:
            canary = _backend(status, revision, share)
    return Backends(stable, canary)


def _backend(status: ServiceStatus, revision: LocalRevision, share: int) -> Backend:
    server = status.server(revision.uri)
    return Backend(revision.uri, server.version, server.url, share)


def _end_with_error(task: "asyncio.Task[None]") -> None:
    """End the server if the reconcile loop failed, for example because the spec can no longer be read."""
    import os
    import signal

    if not task.cancelled() and task.exception():
        say(task.exception(), to=sys.stderr)
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
