"""Judges whether KFP's launcher can fetch a run's inputs: it has the key of its own bucket, and of no other.

Read in KFP 2.17 (backend/src/v2): the importer records an address and opens nothing. The launcher of each step that
takes the input opens the bucket before the step begins (fetchNonDefaultBuckets): with KFP's settings where scheme and
bucket are those of the pipeline root, else with AWS's Go client and the step's environment alone.
"""

import re
from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from pipelines.store_secret import FETCH_ENDPOINT, REGION
from pipelines.submit.needs import Inputs
from pipelines.submit.snapshot import Finding, Seen, StoreSecret, listed
from qinglan.store.connection import KEY, SECRET

REQUIRED = (KEY, SECRET, REGION)
BUCKET = re.compile(r"((?:s3|minio)://)([^/?]+)")
"""gs:// is Google's, whose client finds a key by itself."""


def judge_inputs(inputs: Inputs, seen: Seen) -> Iterator[Finding]:
    """What keeps these steps from their inputs; nothing is said of what could not be read."""
    if seen.pipeline_root is None:
        return
    outside = [uri for uri in inputs.uris if _bucket(uri) not in (None, _bucket(seen.pipeline_root))]
    if not outside or (inputs.secret and inputs.secret not in seen.stores):
        return
    store = seen.stores[inputs.secret] if inputs.secret else None
    if store is None:
        if not seen.cloud_identity:
            yield _without_secret(inputs, outside, seen)
    elif lacking := [key for key in _required(store) if key not in store.keys]:
        yield Finding(
            "missing",
            f"Secret {inputs.secret} in namespace {seen.namespace} has no {', '.join(lacking)}: "
            f"{_fetching(inputs, outside, seen)}",
            f"{_patch(inputs, seen, dict.fromkeys(lacking, '...'))}{_copying(seen)}",
        )
    elif _named_in_the_cluster(store.fetch_endpoint):
        yield _by_name(inputs, outside, seen, store.fetch_endpoint)


def _bucket(uri: str) -> tuple[str, ...] | None:
    match = BUCKET.match(uri)
    return match.groups() if match else None


def _required(store: StoreSecret) -> tuple[str, ...]:
    """An address too, where the store is not AWS."""
    host = urlsplit(store.store_endpoint).hostname or ""
    return REQUIRED if not host or "amazonaws.com" in host else (*REQUIRED, FETCH_ENDPOINT)


def _named_in_the_cluster(endpoint: str) -> bool:
    """Tell whether the cluster's own DNS must know the host: it knows no BUCKET.HOST."""
    host = urlsplit(endpoint).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return bool(host) and ("." not in host or host.endswith((".svc", ".cluster.local")))
    return False


def _fetching(inputs: Inputs, outside: list[str], seen: Seen) -> str:
    return (
        f"KFP could not fetch {listed(outside)} for {listed(inputs.steps, at_most=4)}, "
        f"in another bucket than its own ({seen.pipeline_root})."
    )


def _copying(seen: Seen) -> str:
    return f" Or copy the files into KFP's own bucket, {''.join(_bucket(seen.pipeline_root or '') or ())}."


def _patch(inputs: Inputs, seen: Seen, values: dict[str, str]) -> str:
    pairs = ",".join(f'"{key}":"{value}"' for key, value in values.items())
    return (
        f"Add to store.env, or: kubectl -n {seen.namespace} patch secret {inputs.secret} "
        f"-p '{{\"stringData\":{{{pairs}}}}}'."
    )


def _without_secret(inputs: Inputs, outside: list[str], seen: Seen) -> Finding:
    fetching = _fetching(inputs, outside, seen)
    if not inputs.secret:
        why = "The graph gives no store's key to steps that take an input"
        return Finding("missing", f"{why}: {fetching}", f"Compile it anew with `qinglan compile`.{_copying(seen)}")
    literals = " ".join(f"--from-literal={key}=..." for key in (*REQUIRED, FETCH_ENDPOINT))
    return Finding(
        "missing",
        f"Secret {inputs.secret} is not in namespace {seen.namespace}: {fetching}",
        f"Make it: kubectl -n {seen.namespace} create secret generic {inputs.secret} {literals} "
        f"({FETCH_ENDPOINT} for a store that is not AWS).{_copying(seen)}",
    )


def _by_name(inputs: Inputs, outside: list[str], seen: Seen, endpoint: str) -> Finding:
    """AWS's client asks a store that it is given by name for http://BUCKET.NAME, and one by address for a path."""
    parts = urlsplit(endpoint)
    service, _, rest = str(parts.hostname).partition(".")
    namespace = rest.partition(".")[0] or seen.namespace
    bucket = (_bucket(outside[0]) or ("", ""))[1]
    address = f"'$(kubectl -n {namespace} get service {service} -o jsonpath={{.spec.clusterIP}})'"
    port = f":{parts.port}" if parts.port else ""
    return Finding(
        "missing",
        f"{FETCH_ENDPOINT} in Secret {inputs.secret} is {endpoint}, so that KFP's launcher would ask "
        f"{bucket}.{parts.hostname}, which no cluster's DNS knows: {_fetching(inputs, outside, seen)}",
        f"Name the service by its address. {_patch(inputs, seen, {FETCH_ENDPOINT: f'{parts.scheme}://{address}{port}'})}"
        f"{_copying(seen)}",
    )
