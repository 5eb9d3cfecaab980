"""The local InferenceService: what is asked of it and what it does, in one file; and the rollout's way to both."""

from collections.abc import Mapping
from pathlib import Path

from qinglan.config import Config
from serving.rollout.ports import Revision, Served
from serving.rollout.state import Asked
from standins.rollout_local.objects import Object, Objects

NAME = "service"
KIND = "LocalInferenceService"


class Made(Config):
    """One revision: a release that was asked for, each time that it was."""

    name: str
    uri: str


class Seen(Config):
    """A release's server."""

    version: str = ""
    url: str = ""
    """Where it answers; empty while it does not."""
    failed: str = ""
    """Why it ended when nobody asked it to."""


class Status(Config):
    """What became of what is asked; its server's own memory, too."""

    observed: int = 0
    """The generation that this speaks of."""
    url: str = ""
    """Where users ask."""
    revisions: tuple[Made, ...] = ()
    """Oldest first; those that still matter."""
    count: int = 0
    latest_ready: str = ""
    """The newest that ever became ready: no later trouble takes that back, as in Knative."""
    rolled_out: str = ""
    before: str = ""
    shares: Mapping[str, int] = {}
    """Percent of the traffic by revision, as the router splits it now."""
    servers: Mapping[str, Seen] = {}
    """By URI."""

    def named(self, name: str) -> Made | None:
        return next((one for one in self.revisions if one.name == name), None)

    def seen(self, uri: str) -> Seen:
        return self.servers.get(uri, Seen())

    def revision(self, made: Made | None) -> Revision | None:
        if made is None:
            return None
        seen = self.seen(made.uri)
        return Revision(made.name, made.uri, bool(seen.url), seen.failed)


def objects_of(folder: Path) -> Objects:
    return Objects(folder, "metadata.generation", "spec.uri", "spec.percent", "status")


def begin(folder: Path, uri: str, by: str) -> bool:
    """The first release, which gets all of the traffic; False where one is served already."""
    return objects_of(folder).create(
        NAME,
        {
            "kind": KIND, "metadata": {"name": NAME, "generation": 1},
            "spec": {"uri": uri, "percent": None, "editor": by}, "status": {},
        },
    )  # fmt: skip


def asked_of(one: Object) -> Asked:
    return Asked.parse({name: one["spec"][name] for name in ("uri", "percent")}, f"{NAME}, spec")


def status_of(one: Object) -> Status:
    return Status.parse(one["status"], NAME)


class FileTarget:
    """What the controller reads and writes. `by`: who writes."""

    def __init__(self, folder: Path, by: str = "the rollout's controller") -> None:
        self._objects, self._by = objects_of(folder), by

    def read(self) -> Served:
        return served(self._objects.read(NAME))

    def write(self, asked: Asked, expected: str) -> None:
        """Counts a generation where something changes, as the API server does."""
        one = self._objects.read(NAME)
        one["metadata"]["resourceVersion"] = expected
        if asked_of(one) != asked:
            one["metadata"]["generation"] += 1
            one["spec"] = {**asked.model_dump(mode="json"), "editor": self._by}
        self._objects.replace(NAME, one)


def served(one: Object) -> Served:
    status, generation = status_of(one), int(one["metadata"]["generation"])
    traffic: dict[str, int] = {}
    for name, share in status.shares.items():
        if share and (made := status.named(name)):
            traffic[made.uri] = traffic.get(made.uri, 0) + share
    return Served(
        resource_version=str(one["metadata"]["resourceVersion"]),
        generation=generation,
        settled=status.observed == generation,
        asked=asked_of(one),
        rest="",
        newest=status.revision(status.revisions[-1] if status.revisions else None),
        rolled_out=status.revision(status.named(status.rolled_out)),
        traffic=traffic,
        form="Serverless",
        editor=str(one["spec"].get("editor", "")),
    )
