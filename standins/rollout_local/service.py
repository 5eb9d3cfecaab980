"""Local InferenceService, with spec and status in one file, and the rollout's target that reads and writes it."""

from collections.abc import Mapping
from pathlib import Path

from qinglan.config import Config
from serving.rollout.ports import Revision, ServiceSnapshot
from serving.rollout.state import DesiredModel
from standins.rollout_local.object_files import Object, ObjectFiles

SERVICE_NAME = "service"
KIND = "LocalInferenceService"


class LocalRevision(Config):
    """Revision; each change of the release creates a new one."""

    name: str
    uri: str


class ServerStatus(Config):
    version: str = ""
    url: str = ""
    """URL of the server; empty while the server does not answer."""
    failed: str = ""
    """Reason why the server ended by itself; empty if it did not."""


class ServiceStatus(Config):
    """Status of the service, which is also the serving program's memory."""

    observed: int = 0
    """Generation of the spec that this status reflects."""
    url: str = ""
    """URL of the router, for users."""
    revisions: tuple[LocalRevision, ...] = ()
    """Revisions that are still needed, oldest first."""
    count: int = 0
    latest_ready: str = ""
    """Name of the newest revision that ever became ready. As in Knative, a later failure does not change it."""
    rolled_out: str = ""
    before: str = ""
    shares: Mapping[str, int] = {}
    """Percent of the traffic by revision, as the router splits the traffic now."""
    servers: Mapping[str, ServerStatus] = {}
    """Status of each server, by the URI of its release."""

    def find_revision(self, name: str) -> LocalRevision | None:
        return next((revision for revision in self.revisions if revision.name == name), None)

    def server(self, uri: str) -> ServerStatus:
        return self.servers.get(uri, ServerStatus())

    def revision_snapshot(self, revision: LocalRevision | None) -> Revision | None:
        if revision is None:
            return None
        server = self.server(revision.uri)
        return Revision(revision.name, revision.uri, bool(server.url), server.failed)


def create_service(folder: Path, uri: str, by: str) -> bool:
    """Create the service with its first release, which gets all of the traffic. Returns False if it exists."""
    return ObjectFiles(folder).create(
        SERVICE_NAME,
        {
            "kind": KIND, "metadata": {"name": SERVICE_NAME, "generation": 1},
            "spec": {"uri": uri, "percent": None, "editor": by}, "status": {},
        },
    )  # fmt: skip


def desired_model(service: Object) -> DesiredModel:
    return DesiredModel.parse({name: service["spec"][name] for name in ("uri", "percent")}, f"{SERVICE_NAME}, spec")


def parse_status(service: Object) -> ServiceStatus:
    return ServiceStatus.parse(service["status"], SERVICE_NAME)


class FileTarget:
    """Target of a rollout. `by` is the name of the editor in its writes."""

    def __init__(self, folder: Path, by: str = "the rollout's controller") -> None:
        self._objects, self._by = ObjectFiles(folder), by

    def read(self) -> ServiceSnapshot:
        return service_snapshot(self._objects.read(SERVICE_NAME))

    def write(self, desired: DesiredModel, expected: str) -> None:
        """Write the spec. If the spec changes, its generation grows, as in the API server."""
        service = self._objects.read(SERVICE_NAME)
        service["metadata"]["resourceVersion"] = expected
        if desired_model(service) != desired:
            service["metadata"]["generation"] += 1
            service["spec"] = {**desired.model_dump(mode="json"), "editor": self._by}
        self._objects.replace(SERVICE_NAME, service)


def service_snapshot(service: Object) -> ServiceSnapshot:
    status, generation = parse_status(service), int(service["metadata"]["generation"])
    traffic: dict[str, int] = {}
    for name, share in status.shares.items():
        if share and (revision := status.find_revision(name)):
            traffic[revision.uri] = traffic.get(revision.uri, 0) + share
    return ServiceSnapshot(
        resource_version=str(service["metadata"]["resourceVersion"]),
        generation=generation,
        settled=status.observed == generation,
        desired=desired_model(service),
        rest="",
        newest=status.revision_snapshot(status.revisions[-1] if status.revisions else None),
        rolled_out=status.revision_snapshot(status.find_revision(status.rolled_out)),
        traffic=traffic,
        mode="Serverless",
        editor=str(service["spec"].get("editor", "")),
    )
