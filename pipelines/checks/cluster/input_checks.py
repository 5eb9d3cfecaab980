"""Check whether KFP's launcher can fetch a run's inputs: by itself it has the key of its own bucket only.

Read in KFP 2.17 (backend/src/v2): the importer records an address and opens nothing. The launcher of each step that
takes the input opens the bucket before the step begins (fetchNonDefaultBuckets): with KFP's settings where scheme and
bucket are those of the pipeline root, else with AWS's Go client and the step's environment alone. The same client
opens the pipeline root, and an address in the environment goes for that too where KFP's settings name none.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from pipelines.checks.cluster.cluster_snapshot import ClusterSnapshot, Finding, StoreSecret, join_names
from pipelines.checks.cluster.requirements import ImportedInputs
from pipelines.graph.store_secret import FETCH_ENDPOINT, REGION, STORE_ENDPOINT
from qinglan.documents import parse_yaml
from qinglan.errors import ConfigError
from qinglan.store.s3_connection import ACCESS_KEY_VARIABLE, ENDPOINT_PATTERN, SECRET_KEY_VARIABLE

REQUIRED = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, REGION)
BUCKET = re.compile(r"((?:s3|minio)://)([^/?]+)")
"""gs:// is Google's, whose client finds a key by itself."""

WITHOUT_ENDPOINT = f" (without {FETCH_ENDPOINT} where the inputs are on AWS)"
"""The remark on the command that makes a store's Secret."""

GLOBAL_ENDPOINT = re.compile(r"(https://)?s3\.amazonaws\.com", re.IGNORECASE)
"""KFP's launcher takes it as no address (newS3Client in its object_store.go)."""


def input_findings(inputs: ImportedInputs, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Findings that keep these steps from their inputs and outputs; parts that could not be read give none."""
    yield from _redirected(inputs, snapshot)
    yield from _unreadable(inputs, snapshot)
    if snapshot.pipeline_root is None or snapshot.cloud_identity:
        return
    outside = [uri for uri in inputs.uris if in_other_bucket(uri, snapshot.pipeline_root)]
    if not outside or (inputs.secret and inputs.secret not in snapshot.stores):
        return
    store = snapshot.stores[inputs.secret] if inputs.secret else None
    if store is None:
        yield _without_secret(inputs, outside, snapshot)
    elif lacking := [key for key in _required(store) if key not in store.keys]:
        address = _by_address(store.store_endpoint, snapshot.namespace)
        values = {key: address if key == FETCH_ENDPOINT else "..." for key in lacking}
        yield Finding(
            "missing",
            f"Secret {inputs.secret} in namespace {snapshot.namespace} has no {', '.join(lacking)}: "
            f"{_fetching(inputs, outside, snapshot)}",
            f"{_copying(snapshot)}, or add to store.env, or:",
            patch_store_secret(snapshot.namespace, inputs.secret, values),
        )
    elif store.fetch_endpoint and not ENDPOINT_PATTERN.fullmatch(store.fetch_endpoint):
        yield Finding(
            "missing",
            f"{FETCH_ENDPOINT} in Secret {inputs.secret} is not http(s)://host:port and nothing else: "
            f"{_fetching(inputs, outside, snapshot)}",
            f"{_copying(snapshot)}, or mend it in store.env, or:",
            patch_store_secret(snapshot.namespace, inputs.secret, {FETCH_ENDPOINT: "http://ADDRESS:PORT"}),
        )
    elif _named_in_the_cluster(store.fetch_endpoint):
        yield _by_name(inputs, outside, snapshot, store.fetch_endpoint)


def in_other_bucket(uri: str, root: str | None) -> bool:
    """Tell whether an input is in an S3 bucket of which KFP's launcher has no key; False where that is not known."""
    return root is not None and _bucket(uri) not in (None, _bucket(root))


def root_without_address(root: str, providers: str) -> bool:
    """Tell whether KFP's settings (`providers` of kfp-launcher) leave the address of its bucket to AWS's client."""
    if not root.startswith("s3://") or "endpoint=" in root:
        return False
    try:
        settings = parse_yaml(providers, "kfp-launcher: providers")
    except ConfigError:
        return False  # KFP reports this itself, before any step
    s3 = _mapping(_mapping(settings).get("s3"))
    endpoint = _override(root, s3) or str(_mapping(s3.get("default")).get("endpoint") or "")
    return not endpoint or GLOBAL_ENDPOINT.match(endpoint) is not None


def _override(root: str, s3: Mapping[str, Any]) -> str:
    """The address that the first override for the root's folder names (getOverrideByPrefix in KFP's s3.go)."""
    for override in map(_mapping, s3.get("Overrides") or s3.get("overrides") or ()):
        if f"{root}/".startswith(f"s3://{override.get('bucketName')}/{override.get('keyPrefix') or ''}"):
            return str(override.get("endpoint") or "")
    return ""


def _redirected(inputs: ImportedInputs, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Report outputs that would be sent to the store of the inputs, which does not know KFP's key."""
    store = snapshot.stores.get(inputs.secret)
    if not (store and store.fetch_endpoint and snapshot.root_without_address):
        return
    yield Finding(
        "missing",
        f"{FETCH_ENDPOINT} in Secret {inputs.secret} goes for KFP's own bucket too ({snapshot.pipeline_root}), "
        f"whose address the ConfigMap kfp-launcher in namespace {snapshot.namespace} does not name: "
        f"what {join_names(inputs.steps, at_most=4)} make would be sent to the store of their inputs.",
        "Name it there, under providers: s3: default: endpoint (of AWS, s3.REGION.amazonaws.com).",
    )


def _unreadable(inputs: ImportedInputs, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Report inputs that the store refuses to the key of these steps."""
    for uri in inputs.uris:
        answer = snapshot.answers.get(uri)
        if answer and answer.state != "silent":
            yield Finding(
                "missing",
                f"{uri} cannot be read with the key in Secret {inputs.secret}: {answer.why}. "
                f"{join_names(inputs.steps, at_most=4)} would fail.",
                "Copy the file there, or mend the address."
                if answer.state == "absent"
                else "Let this key list the bucket and read the object (s3:ListBucket, s3:GetObject), or mend it.",
            )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _bucket(uri: str) -> tuple[str, ...] | None:
    match = BUCKET.match(uri)
    return match.groups() if match else None


def _required(store: StoreSecret) -> tuple[str, ...]:
    """Keys that the Secret must hold: an address too, if the store is not AWS."""
    host = urlsplit(store.store_endpoint).hostname or ""
    return REQUIRED if not host or "amazonaws.com" in host else (*REQUIRED, FETCH_ENDPOINT)


def _named_in_the_cluster(endpoint: str) -> bool:
    """Tell whether the cluster's own DNS must know the host: it knows no BUCKET.HOST."""
    host = urlsplit(endpoint).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return bool(host) and (host.count(".") < 2 or host.endswith((".svc", ".cluster.local")))
    return False


def _fetching(inputs: ImportedInputs, outside: list[str], snapshot: ClusterSnapshot) -> str:
    return (
        f"KFP could not fetch {join_names(outside)} for {join_names(inputs.steps, at_most=4)}, "
        f"in another bucket than its own ({snapshot.pipeline_root})."
    )


def _copying(snapshot: ClusterSnapshot) -> str:
    return f"Copy the files into KFP's own bucket, {''.join(_bucket(snapshot.pipeline_root or '') or ())}"


def patch_store_secret(namespace: str, name: str, values: Mapping[str, str]) -> str:
    """The command that gives a store's Secret these values too."""
    pairs = ",".join(f'"{key}":"{value}"' for key, value in values.items())
    return f"kubectl -n {namespace} patch secret {name} -p '{{\"stringData\":{{{pairs}}}}}'"


def _without_secret(inputs: ImportedInputs, outside: list[str], snapshot: ClusterSnapshot) -> Finding:
    fetching = _fetching(inputs, outside, snapshot)
    if not inputs.secret:
        why = "The graph gives no store's key to steps that take an input"
        return Finding(
            "missing", f"{why}: {fetching}", f"{_copying(snapshot)}, or compile the graph anew:", "qinglan compile"
        )
    return Finding(
        "missing",
        f"Secret {inputs.secret} is not in namespace {snapshot.namespace}: {fetching}",
        f"{_copying(snapshot)}, or make it{WITHOUT_ENDPOINT}:",
        create_store_secret(snapshot.namespace, inputs.secret),
    )


def create_store_secret(namespace: str, name: str) -> str:
    """The command that makes a store's Secret with all that any step takes of it."""
    literals = " ".join(f"--from-literal={key}=..." for key in (*REQUIRED, FETCH_ENDPOINT, STORE_ENDPOINT))
    return f"kubectl -n {namespace} create secret generic {name} {literals}"


def _by_name(inputs: ImportedInputs, outside: list[str], snapshot: ClusterSnapshot, endpoint: str) -> Finding:
    """Report a store that is named by host: AWS's client then asks http://BUCKET.HOST, but an IP address by path."""
    host = urlsplit(endpoint).hostname
    bucket = (_bucket(outside[0]) or ("", ""))[1]
    return Finding(
        "missing",
        f"{FETCH_ENDPOINT} in Secret {inputs.secret} is {endpoint}, so that KFP's launcher would ask "
        f"{bucket}.{host}, which no cluster's DNS knows: {_fetching(inputs, outside, snapshot)}",
        f"{_copying(snapshot)}, or name the service by its address, in store.env or by:",
        patch_store_secret(
            snapshot.namespace, inputs.secret, {FETCH_ENDPOINT: _by_address(endpoint, snapshot.namespace)}
        ),
    )


def _by_address(endpoint: str, namespace: str) -> str:
    """The endpoint with the IP address of its Service, as a shell expression; unchanged if it names no Service."""
    if not ENDPOINT_PATTERN.fullmatch(endpoint):
        return "..."
    if not _named_in_the_cluster(endpoint):
        return endpoint
    parts = urlsplit(endpoint)
    service, _, rest = str(parts.hostname).partition(".")
    owner = rest.partition(".")[0] or namespace
    port = f":{parts.netloc.rpartition(':')[2]}" if ":" in parts.netloc else ""
    return f"{parts.scheme}://'$(kubectl -n {owner} get service {service} -o jsonpath={{.spec.clusterIP}})'{port}"
