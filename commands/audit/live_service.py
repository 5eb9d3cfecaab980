"""Find the releases that a live InferenceService serves, from its spec, its revisions, its pods and its metrics.

live = inspect_service(api, "rewriter")
live.addresses      addresses of the releases in use; each release is then audited
live.findings       URIs and pods that match no release
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from qinglan.errors import ConfigError
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.model_rollouts import Object, deployed_uris, rollouts_of_service
from qinglan.lineage.release.release_address import ReleaseAddress, parse_release_uri
from qinglan.lineage.signing.findings import Finding
from serving.rollout.cluster.inference_service import SOURCE_ANNOTATION, storage_uri
from serving.rollout.cluster.object_cache import SERVICE_LABEL

INITIALISER_COMMAND = ["python", "-m", "serving.initialiser"]
VERSION_METRIC = re.compile(r'^qinglan_\w+\{[^}]*\bversion="([0-9a-f]{12})"', re.MULTILINE)
METRICS_TIMEOUT_SECONDS = 3.0


class ServedUri(NamedTuple):
    """A model URI with the object that names it: the spec, a revision or a pod."""

    where: str
    uri: str
    about: str = ""
    """The object's share of the traffic in words; empty if it is unknown."""


class LiveService(NamedTuple):
    namespace: str
    name: str
    served_uris: tuple[ServedUri, ...]
    addresses: tuple[ReleaseAddress, ...]
    findings: tuple[Finding, ...]
    versions: tuple[str, ...] | None
    """Model versions that the server reports; None if it cannot be reached from here."""


class ServiceObjects(NamedTuple):
    """Kubernetes objects that are read for one InferenceService."""

    service: Object
    revisions: Mapping[str, Object]
    pods: tuple[Object, ...]
    rollouts: tuple[Object, ...] | None
    """All ModelRollouts of the namespace; None if they may not be read, or if the cluster has no ModelRollout
    resource."""


def inspect_service(api: Api, name: str) -> LiveService:
    """Read the service and match it to releases; ConfigError if it does not exist or may not be read."""
    try:
        objects = _objects(api, name)
    except ApiError as refusal:
        raise explain_api_error(refusal, api.host, api.namespace) from refusal
    return match_releases(objects, api.namespace, fetch_server_versions(objects.service))


def match_releases(objects: ServiceObjects, namespace: str, versions: tuple[str, ...] | None = None) -> LiveService:
    name = objects.service["metadata"]["name"]
    service_uris = [*_requested_uris(objects.service), *_revision_uris(objects)]
    requested = {served.uri for served in service_uris}
    served_uris = [*service_uris, *(_pod_uri(pod) for pod in objects.pods)]
    addresses, findings = _addresses(served_uris)
    findings += [*_unrequested_pods(objects, requested), *_uris_without_rollout(objects, name, requested)]
    return LiveService(namespace, name, tuple(served_uris), addresses, tuple(findings), versions)


def _objects(api: Api, name: str) -> ServiceObjects:
    service = api.get("inferenceservices", name)
    if service is None:
        names = ", ".join(item["metadata"]["name"] for item in api.all("inferenceservices", {})["items"])
        raise ConfigError(f"isvc:{api.namespace}/{name}: no such InferenceService. There are: {names or 'none'}.")
    pods = api.all("pods", {"labelSelector": f"{SERVICE_LABEL}={name}"})["items"]
    active = tuple(
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    )
    revisions = {name: api.get("revisions", name) or {} for name, percent in _traffic(service).items() if percent}
    return ServiceObjects(service, revisions, active, _rollouts(api))


def _rollouts(api: Api) -> tuple[Object, ...] | None:
    try:
        return tuple(api.all("modelrollouts", {})["items"])
    except ApiError as refusal:
        if refusal.status in (403, 404):
            return None
        raise


def _traffic(service: Object) -> dict[str, int | None]:
    """Return the percentage of the traffic of each revision."""
    # KServe copies Knative's traffic targets into this status; a target may have a tag and no share:
    # https://knative.dev/docs/serving/traffic-management/
    predictor = service.get("status", {}).get("components", {}).get("predictor", {})
    targets = predictor.get("traffic") or ()
    return {target["revisionName"]: target.get("percent") for target in targets if target.get("revisionName")}


def _requested_uris(service: Object) -> Iterator[ServedUri]:
    spec = service["spec"]
    yield ServedUri("spec", storage_uri(spec["predictor"]), _share(spec["predictor"].get("canaryTrafficPercent")))
    for canary in spec.get("canary") or ():
        yield ServedUri(
            "spec.canary", storage_uri(canary.get("predictor") or {}), _share(canary.get("trafficPercent"))
        )


def _share(percent: int | None) -> str:
    return "" if percent is None else f"{percent} % of the traffic"


def _revision_uris(objects: ServiceObjects) -> Iterator[ServedUri]:
    shares = _traffic(objects.service)
    for name, revision in objects.revisions.items():
        annotations = revision.get("metadata", {}).get("annotations") or {}
        yield ServedUri(f"revision {name}", str(annotations.get(SOURCE_ANNOTATION, "")), _share(shares.get(name)))


def _pod_uri(pod: Object) -> ServedUri:
    """Return the URI in the arguments of the pod's first init container, if that container is our initialiser, which
    verifies releases. Otherwise the URI is empty."""
    first = (pod["spec"].get("initContainers") or [{}])[0]
    arguments = first.get("args") or []
    verifies = first.get("command") == INITIALISER_COMMAND and len(arguments) == 2
    return ServedUri(f"pod {pod['metadata']['name']}", str(arguments[0]) if verifies else "")


def _addresses(served_uris: Iterable[ServedUri]) -> tuple[tuple[ReleaseAddress, ...], list[Finding]]:
    """Return the addresses of the releases, and a finding for each URI that names no release by its digest."""
    addresses: dict[str, ReleaseAddress] = {}
    faults = []
    for served in served_uris:
        try:
            address = parse_release_uri(served.uri)
            addresses.setdefault(address.digest, address)
        except ConfigError:
            why = (
                f"{served.uri} is no release by its digest" if served.uri else "it names no release that was verified"
            )
            faults.append(Finding(served.where, "untrusted", why))
    return tuple(addresses.values()), faults


def _unrequested_pods(objects: ServiceObjects, requested: set[str]) -> Iterator[Finding]:
    """Find pods that serve a URI which the service does not request; pods of a retired revision are ignored."""
    for pod in objects.pods:
        served = _pod_uri(pod)
        if served.uri and served.uri not in requested and not _retired(pod, objects):
            yield Finding(
                served.where, "altered", f"it serves {served.uri}, which the InferenceService does not ask for"
            )


def _retired(pod: Object, objects: ServiceObjects) -> bool:
    # https://knative.dev/docs/serving/autoscaling/scale-to-zero/: pods of a revision without traffic live on for a
    # while.
    revision = (pod["metadata"].get("labels") or {}).get("serving.knative.dev/revision")
    return bool(revision) and revision not in objects.revisions


def _uris_without_rollout(objects: ServiceObjects, service: str, requested: set[str]) -> Iterator[Finding]:
    """Find URIs that no rollout has deployed, such as an orphaned canary."""
    if objects.rollouts is None:
        return
    for uri in sorted(requested - deployed_uris(rollouts_of_service(objects.rollouts, service)) - {""}):
        yield Finding("rollout", "missing", f"no ModelRollout has brought {uri} to {service}")


def fetch_server_versions(service: Object) -> tuple[str, ...] | None:
    import httpx2

    from qinglan.http.http_client import sync_client

    for url in (service.get("status", {}).get("url"), (service.get("status", {}).get("address") or {}).get("url")):
        try:
            with sync_client(timeout=METRICS_TIMEOUT_SECONDS) as http:
                if url and (answer := http.get(f"{url}/metrics")).status_code == 200:
                    return tuple(sorted(set(VERSION_METRIC.findall(answer.text))))
        except httpx2.HTTPError:
            continue
    return None


def unmatched_versions(versions: Iterable[str] | None, models: Mapping[str, str]) -> list[Finding]:
    """Find versions that the server reports but no release in `models` has. `models` maps the digest of each
    release's model to the release's name."""
    return [
        Finding(
            "server", "altered", f"it answers as {version}, and what is asked for is {', '.join(models) or 'nothing'}"
        )
        for version in versions or ()
        if version not in {digest[:12] for digest in models}
    ]


def service_lines(live: LiveService) -> Iterator[str]:
    for served in live.served_uris:
        addresses, _ = _addresses([served])
        name = addresses[0].digest[:12] if addresses else served.uri or "no release"
        yield f"{served.where}: {name}{f', {served.about}' if served.about else ''}"
    if live.versions is None:
        yield "server: cannot be reached from here, and was not asked"
    else:
        yield f"server: answers as {', '.join(live.versions) or 'nothing that it names'}"
