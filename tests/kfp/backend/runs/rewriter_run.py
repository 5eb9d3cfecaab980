"""The rewriter's whole line on KFP as a user runs it: from a sheet in a bucket to a model that KServe serves.

    python -m tests.kfp.backend run

`qinglan submit` is called as a command, with the environment that `make kfp` leaves. What passes the gate is released
and asked for by a ModelRollout; the rollout's controller makes the InferenceService.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pipelines.graph.compiler import image_names
from qinglan.errors import ConfigError, OutageError, QinglanError
from qinglan.files.digests import file_digests, tree_digest
from qinglan.files.files import sha256_text
from tests.cluster.plane.objects import kubectl
from tests.cluster.plane.processes import Folder, step_printer
from tests.kfp.backend.backend import PROFILE as NAMESPACE
from tests.kfp.backend.cluster import running_cluster, store_of
from tests.kfp.backend.runs.tenant import BUCKET, TENANT, Tenant, set_up
from tests.manifests.manifest_objects import MANIFESTS

SERVICE = "rewriter"
ROLLOUT_SECONDS = 300.0
QINGLAN = Path(sys.executable).with_name("qinglan")


def run_rewriter(folder: Folder, cluster_root: Path, conversations: int, seed: int) -> None:
    say = step_printer()
    cluster = running_cluster(cluster_root)
    require_no_model(cluster)
    tenant = set_up(folder, cluster, store_of(cluster), conversations, seed)
    say(f"tenant {TENANT} in namespace {NAMESPACE}")
    submit(folder, tenant, tenant.profile)
    say("the run is over")
    rollout = await_rollout(cluster)
    say(f"{rollout['metadata']['name']}: {outcome(rollout)}")
    await_service(cluster)
    say(f"InferenceService {SERVICE} is Ready")
    command(folder, "audit", "--live", SERVICE, "-n", NAMESPACE)
    say("audited")


def require_no_model(cluster: Folder) -> None:
    """Refuse where a model is served: a second one is a canary, and needs traffic."""
    if objects_of(cluster, "inferenceservices.serving.kserve.io"):
        raise ConfigError(
            f"Namespace {NAMESPACE} serves a model already. For a second one as its canary: make kfp-canary. "
            "To begin anew: make kfp-down cluster-down"
        )


def submit(folder: Folder, tenant: Tenant, profile: Path) -> None:
    """Submit and follow, as docs/submit.md says."""
    sheets = {"--questions": tenant.questions, "--knowledge-base": tenant.knowledge_base}
    options = [word for name, file in sheets.items() for word in (name, f"s3://{BUCKET}/{file.name}")]
    options += [
        word for name, reference in digests_of_images().items() for word in ("--image", f"{name}={reference}")
    ]
    command(folder, "submit", "rewriter", TENANT, "--profile", str(profile), *options)


def digests_of_images() -> dict[str, str]:
    """Name each image by a digest of this checkout, which stands for it: KFP's cache believes in no tag."""
    rooms = [
        MANIFESTS.parent / room for room in ("qinglan", "components", "pipelines", "commands", "serving", "standins")
    ]
    files = {f"{room.name}/{name}": sha for room in rooms for name, sha in file_digests(room).items()}
    code = sha256_text(tree_digest({name: sha for name, sha in files.items() if "__pycache__" not in name}))
    return {name: f"{name}@sha256:{code}" for name in image_names()}


def command(folder: Folder, *words: str, expected: int = 0) -> None:
    """Run `qinglan` in the shell's environment after `source runs/kfp/env`."""
    shell = ["bash", "-c", 'source "$0" && exec "$@"', str(folder.root / "env"), str(QINGLAN)]
    environment = {**os.environ, "QINGLAN_KEYS": str(folder.root / "tenant" / "keys")}
    done = subprocess.run([*shell, *words], env=environment, check=False)
    if done.returncode != expected:
        raise QinglanError(f"qinglan {' '.join(words)} ended with {done.returncode}, not {expected}")


def rollouts(cluster: Folder) -> list[Any]:
    return objects_of(cluster, "modelrollouts")


def newest_rollout(cluster: Folder) -> Any:
    """The newest ModelRollout of the namespace; {} where there is none."""
    return max(rollouts(cluster), key=lambda it: it["metadata"]["creationTimestamp"], default={})


def await_rollout(cluster: Folder) -> Any:
    """The newest ModelRollout, when it is done."""
    deadline = time.monotonic() + ROLLOUT_SECONDS
    while True:
        newest = newest_rollout(cluster)
        if newest.get("status", {}).get("phase") == "Done":
            return newest
        if time.monotonic() > deadline:
            raise OutageError(f"No ModelRollout is done after {ROLLOUT_SECONDS:.0f} s: {newest.get('status')}")
        time.sleep(1)


def outcome(rollout: Any) -> str:
    """The outcome of a rollout that is done, with its reasons."""
    status = rollout["status"]
    return f"{status.get('outcome')}: {'; '.join(status.get('reasons') or ())}"


def await_service(cluster: Folder) -> None:
    arguments = ["wait", f"inferenceservice/{SERVICE}", "--for=condition=Ready", f"--timeout={ROLLOUT_SECONDS:.0f}s"]
    kubectl(cluster, "-n", NAMESPACE, *arguments)


def objects_of(cluster: Folder, kind: str) -> list[Any]:
    items: list[Any] = json.loads(kubectl(cluster, "-n", NAMESPACE, "get", kind, "-o", "json"))["items"]
    return items
