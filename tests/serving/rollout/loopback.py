"""Two real rewriters behind the real router, a controller that can be killed, and users: all on loopback."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson

from components.release.deploy.config import DeployConfig
from components.release.deploy.stage import deploy
from qinglan.lineage.release.release_address import ReleaseAddress
from qinglan.store import open_store
from serving.rollout.ports import ServiceSnapshot
from serving.rollout.state import State
from standins.rollout_local.ledger import FileRollouts, parse_state
from standins.rollout_local.object_files import ObjectFiles
from standins.rollout_local.service import SERVICE_NAME, create_service, service_snapshot
from tests.processes.forkserver import GATEWAY, forked
from tests.releases.registered_release import SignedRelease
from tests.serving.model_servers import REQUEST, V1, announced

USERS = 10
POLICY: dict[str, Any] = {
    "steps": [20, 50, 100], "stepSeconds": 5, "minimumSample": 30, "deadlineSeconds": 300,
    "checks": [
        {"name": "errors", "margin": 0.1}, {"name": "fallbacks", "margin": 0.1},
        {"name": "costly", "margin": 0.1, "tokens": 64},
    ],
}  # fmt: skip
"""Policy of these tests: a canary is found good or bad within seconds."""


class Answer(NamedTuple):
    status: int
    version: str
    message: str = ""


class Place(NamedTuple):
    """A folder with a service, its store, and two releases in it."""

    folder: Path
    stable: SignedRelease
    canary: SignedRelease

    def address(self, built: SignedRelease) -> str:
        return ReleaseAddress(str(self.folder / "store"), built.registered.release, False).uri

    @property
    def state(self) -> State:
        return parse_state(FileRollouts(self.folder).objects.read("rewriter-1"))

    @property
    def served(self) -> ServiceSnapshot:
        return service_snapshot(ObjectFiles(self.folder).read(SERVICE_NAME))

    def begin(self) -> None:
        """The stable release has everybody, the canary's rollout is asked for by the deploy stage."""
        store = open_store(str(self.folder / "store")).prepare()
        for built in (self.stable, self.canary):
            store.push(built.folder, built.registered.release)
        create_service(self.folder, self.address(self.stable), "the test")
        config = DeployConfig(
            name="fivedoctors/rewriter", store=str(self.folder / "store"), namespace="loopback", rollout=POLICY
        )
        deploy(self.canary.folder, config, self.canary.policy, FileRollouts(self.folder))

    def break_canary(self, how: str) -> None:
        (self.folder / f"broken-{self.canary.registered.release}").write_text(how)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The router's URL, once the stable model is ready."""
        server = forked("tests.serving.rollout.faulty_server")
        service = forked("tests.serving.rollout.faulty_service", str(self.folder), *server, libraries=GATEWAY)
        with announced(self.folder / "serve.log", service) as (_, url):
            wait(lambda: self.served.traffic == {self.address(self.stable): 100})
            yield url

    @contextmanager
    def controlled(self) -> Iterator["subprocess.Popen[bytes]"]:
        with (self.folder / "controller.log").open("ab") as log:
            process = subprocess.Popen(
                forked("standins.rollout_local", str(self.folder), libraries=GATEWAY), stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait(holds: Callable[[], bool], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.05)


async def client_of(
    url: str, until: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None
) -> list[Answer]:
    """Ten users, each with one question after another on a connection of its own, until `until`."""
    answers: list[Answer] = []
    over = asyncio.Event()

    async def user() -> None:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
            while not over.is_set():
                answers.append(await ask(http))
                await asyncio.sleep(0.3)

    async def watch() -> None:
        deadline = time.monotonic() + 600
        while not until() and time.monotonic() < deadline:
            meanwhile()
            await asyncio.sleep(0.1)
        over.set()

    await asyncio.gather(watch(), *(user() for _ in range(USERS)))
    return answers


async def ask(http: httpx.AsyncClient, **headers: str) -> Answer:
    try:
        response = await http.post(V1, json={"instances": [REQUEST]}, headers=headers)
    except httpx.HTTPError as error:
        return Answer(0, "", repr(error))
    if response.status_code != 200:
        return Answer(response.status_code, "", response.text)
    return Answer(200, str(orjson.loads(response.content)["predictions"][0]["model_version"]))
