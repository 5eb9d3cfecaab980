"""Compare the cluster's own volume claims with the bytes that a run keeps on them."""

import json
import math
from collections.abc import Iterator, Mapping

from pipelines.checks.cluster.cluster_snapshot import ClusterSnapshot, Finding
from qinglan.sizing.constants import GB, GIB


def volume_findings(volumes: Mapping[str, float], snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Report the claims that are smaller than what they must hold; `volumes` are bytes by the claim's name."""
    for name, needed in volumes.items():
        size = snapshot.claim_bytes.get(name, 0.0)
        if 0 < size < needed:
            requests = {"storage": f"{math.ceil(needed / GIB)}Gi"}
            patch = json.dumps({"spec": {"resources": {"requests": requests}}}, separators=(",", ":"))
            yield Finding(
                "missing",
                f"PersistentVolumeClaim {name} in namespace {snapshot.namespace} has {size / GB:,.1f} GB, and the "
                f"run keeps up to {needed / GB:,.1f} GB there (`qinglan fit` shows its parts).",
                "Claim a larger one, and name it in the profile (cluster.scratch, cluster.base_weights); or, where "
                "its StorageClass allows that, enlarge it:",
                f"kubectl -n {snapshot.namespace} patch pvc {name} -p '{patch}'",
            )
