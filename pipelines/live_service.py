"""What a live InferenceService serves, matched to releases: by what it asks for, what its revisions and pods were
started with, and what its server says of itself.

    live = look(api, "rewriter")
    live.addresses      the releases; each is then audited as any other
    live.findings       what cannot be matched
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from qinglan.errors import ConfigError
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.model_rollouts import (
    Object,
    deployed_uris,
    describe_rollout,
    rollout_outcome,
    rollouts_of_service,
)
from qinglan.lineage.findings import Finding
from qinglan.lineage.release_address import ReleaseAddress, parse_release_uri
from serving.rollout.cluster.inference_service import SOURCE_ANNOTATION, storage_uri
from serving.rollout.cluster.object_cache import SERVICE_LABEL

INITIALISER_COMMAND = ["python", "-m", "serving.initialiser"]
VERSION_METRIC = re.compile(r'^qinglan_\w+\{[^}]*\bversion="([0-9a-f]{12})"', re.MULTILINE)
METRICS_TIMEOUT_SECONDS = 3.0


class ServedUri(NamedTuple):
    """One place that names what is served."""

    where: str
    uri: str
    about: str = ""


class LiveService(NamedTuple):
    namespace: str
    name: str
    seen: tuple[ServedUri, ...]
    addresses: tuple[ReleaseAddress, ...]
    findings: tuple[Finding, ...]
    versions: tuple[str, ...] | None
    """By which its server calls its models; None where it could not be asked from here."""


class ServiceObjects(NamedTuple):
    """What the API server holds of one model."""

    service: Object
    revisions: Mapping[str, Object]
    pods: tuple[Object, ...]
    rollouts: tuple[Object, ...] | None
    """None where nobody may read them, or there are none of this kind."""


def inspect_service(api: Api, name: str) -> LiveService:
    """A ConfigError where there is no such InferenceService, or it may not be read."""
    try:
        objects = _objects(api, name)
    except ApiError as refusal:
        raise explain_api_error(refusal, api.host, api.namespace) from refusal
    return match_releases(objects, api.namespace, fetch_server_versions(objects.service))


def match_releases(objects: ServiceObjects, namespace: str, versions: tuple[str, ...] | None = None) -> LiveService:
    """A pure function of what was read."""
    name = objects.service["metadata"]["name"]
    asked = [*_requested_uris(objects.service)]
    seen = [*asked, *_revision_uris(objects), *(_pod_uri(pod) for pod in objects.pods)]
    addresses, findings = _addresses(seen)
    findings += [*_unrequested_pods(objects, {one.uri for one in seen if not one.where.startswith("pod ")})]
    findings += [*_uris_without_rollout(objects, name, {one.uri for one in seen if not one.where.startswith("pod ")})]
    return LiveService(namespace, name, tuple(seen), addresses, tuple(findings), versions)


def _objects(api: Api, name: str) -> ServiceObjects:
    service = api.get("inferenceservices", name)
    if service is None:
        there = ", ".join(one["metadata"]["name"] for one in api.all("inferenceservices", {})["items"]) or "none"
        raise ConfigError(f"isvc:{api.namespace}/{name}: no such InferenceService. There are: {there}.")
    pods = api.all("pods", {"labelSelector": f"{SERVICE_LABEL}={name}"})["items"]
    revisions = {one: api.get("revisions", one) or {} for one in _revisions(service)}
    return ServiceObjects(service, revisions, tuple(one for one in pods if _is_active(one)), _rollouts(api))


def _rollouts(api: Api) -> tuple[Object, ...] | None:
    try:
        return tuple(api.all("modelrollouts", {})["items"])
    except ApiError as refusal:
        if refusal.status in (403, 404):
            return None
        raise


def _is_active(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod.get("status", {}).get("phase") not in (
        "Succeeded", "Failed",
    )  # fmt: skip


def _predictor(service: Object) -> Mapping[str, Any]:
    found: Mapping[str, Any] = service.get("status", {}).get("components", {}).get("predictor", {})
    return found


def _revisions(service: Object) -> list[str]:
    """Those that have traffic."""
    traffic = _predictor(service).get("traffic") or ()
    return [one["revisionName"] for one in traffic if one.get("percent") and one.get("revisionName")]


def _requested_uris(service: Object) -> Iterator[ServedUri]:
    spec = service["spec"]
    yield ServedUri("spec", storage_uri(spec["predictor"]), _share(spec["predictor"].get("canaryTrafficPercent")))
    for one in spec.get("canary") or ():
        yield ServedUri("spec.canary", storage_uri(one.get("predictor") or {}), _share(one.get("trafficPercent")))


def _share(percent: int | None) -> str:
    return "" if percent is None else f"{percent} % of the traffic"


def _revision_uris(objects: ServiceObjects) -> Iterator[ServedUri]:
    shares = {one.get("revisionName"): one.get("percent") for one in _predictor(objects.service).get("traffic") or ()}
    for name, revision in objects.revisions.items():
        annotations = revision.get("metadata", {}).get("annotations") or {}
        yield ServedUri(f"revision {name}", str(annotations.get(SOURCE_ANNOTATION, "")), _share(shares.get(name)))


def _pod_uri(pod: Object) -> ServedUri:
    first = _initialiser(pod)
    images = {one["name"]: one["image"] for one in pod["spec"]["containers"]}
    running = {one["name"]: one.get("imageID") or "" for one in pod.get("status", {}).get("containerStatuses") or ()}
    about = ", ".join(f"{name} runs {running.get(name) or image}" for name, image in images.items())
    return ServedUri(f"pod {pod['metadata']['name']}", str(first["args"][0]) if first else "", about)


def _initialiser(pod: Object) -> Mapping[str, Any] | None:
    """Ours alone: another has verified nothing."""
    first = (pod["spec"].get("initContainers") or [{}])[0]
    ours = first.get("command") == INITIALISER_COMMAND and len(first.get("args") or ()) == 2
    return first if ours else None


def _addresses(seen: Iterable[ServedUri]) -> tuple[tuple[ReleaseAddress, ...], list[Finding]]:
    """The releases that are named, and who names none."""
    found: dict[str, ReleaseAddress] = {}
    faults = []
    for one in seen:
        try:
            address = parse_release_uri(one.uri)
            found.setdefault(address.digest, address)
        except ConfigError:
            why = f"{one.uri} is no release by its digest" if one.uri else "it names no release that was verified"
            faults.append(Finding(one.where, "untrusted", why))
    return tuple(found.values()), faults


def _unrequested_pods(objects: ServiceObjects, asked: set[str]) -> Iterator[Finding]:
    """Pods that serve what nobody asks for. Pods that are only just going are as they were asked to be before."""
    for pod in objects.pods:
        seen = _pod_uri(pod)
        if seen.uri and seen.uri not in asked and not _retired(pod, objects):
            yield Finding(seen.where, "altered", f"it serves {seen.uri}, which the InferenceService does not ask for")


def _retired(pod: Object, objects: ServiceObjects) -> bool:
    """Knative keeps pods of a revision without traffic until it has scaled them away."""
    revision = (pod["metadata"].get("labels") or {}).get("serving.knative.dev/revision")
    return bool(revision) and revision not in objects.revisions


def _uris_without_rollout(objects: ServiceObjects, service: str, there: set[str]) -> Iterator[Finding]:
    """What is asked for, or has traffic, without a rollout that brought it: such as an orphaned canary."""
    if objects.rollouts is None:
        return
    own = rollouts_of_service(objects.rollouts, service)
    for uri in sorted(there - deployed_uris(own)):
        if uri:
            tried = [
                f"{one['metadata']['name']}: {rollout_outcome(one) or describe_rollout(one)}"
                for one in own
                if _rolls_out(one, uri)
            ]
            told = f" ({', '.join(tried)})" if tried else ""
            yield Finding("rollout", "missing", f"no ModelRollout has brought {uri} to {service}{told}")


def _rolls_out(rollout: Object, uri: str) -> bool:
    return bool(rollout["spec"]["release"]["uri"] == uri)


def fetch_server_versions(service: Object) -> tuple[str, ...] | None:
    """Its server's own word, where it can be reached from here."""
    import httpx

    for url in (service.get("status", {}).get("url"), (service.get("status", {}).get("address") or {}).get("url")):
        try:
            if url and (answer := httpx.get(f"{url}/metrics", timeout=METRICS_TIMEOUT_SECONDS)).status_code == 200:
                return tuple(sorted(set(VERSION_METRIC.findall(answer.text))))
        except httpx.HTTPError:
            continue
    return None


def unmatched_versions(versions: Iterable[str] | None, models: Mapping[str, str]) -> list[Finding]:
    """Versions that the server answers by, and that no release which is asked for has; `models` by their releases."""
    return [
        Finding(
            "server", "altered", f"it answers as {version}, and what is asked for is {', '.join(models) or 'nothing'}"
        )
        for version in versions or ()
        if version not in {digest[:12] for digest in models}
    ]


def service_lines(live: LiveService) -> Iterator[str]:
    """For people, a line for each place."""
    for one in live.seen:
        name = parse_release_uri(one.uri).digest[:12] if not _addresses([one])[1] else one.uri or "no release"
        yield f"{one.where}: {name}{f', {one.about}' if one.about else ''}"
    if live.versions is None:
        yield "server: cannot be reached from here, and was not asked"
    else:
        yield f"server: answers as {', '.join(live.versions) or 'nothing that it names'}"
