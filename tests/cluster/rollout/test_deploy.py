"""From a release in a real S3 to what an InferenceService serves, and back: as the accounts that do it."""

import copy
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from minio import Minio as Client

from components.release.deploy.cluster import ClusterRollouts
from components.release.deploy.config import DeployConfig
from components.release.deploy.stage import Deployed, deploy
from qinglan.errors import ConfigError, ConflictError, QinglanError
from qinglan.files.digests import digest
from qinglan.kubernetes.client import Api
from qinglan.lineage.signing.trust import TRUST_FILE
from qinglan.store import open_store
from serving.rollout.cluster.first_inference_service import first_inference_service
from tests.cluster.kubectl import Kubectl
from tests.cluster.overlays import Overlays
from tests.cluster.rollout.test_kserve import NS, ROLLOUT, ready, served
from tests.cluster.servers import Minio
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import Object
from tests.releases.registered_release import NAME, SignedRelease, use_keys
from tests.releases.whole_release import make_whole_release

QINGLAN = "from commands.cli import main; main()"


class World(NamedTuple):
    kubectl: Kubectl
    cluster: Any
    s3: Minio
    store: str
    old: SignedRelease
    new: SignedRelease

    def deploy(self, release: SignedRelease, account: str = "pipeline-runner", **more: Any) -> Deployed:
        """As the step does it, with the token of its account."""
        config = DeployConfig(name=NAME, store=self.store, namespace=NS, **more)
        api = Api(self.cluster.account(NS, account), NS)
        return deploy(release.folder, config, release.policy, ClusterRollouts(NS, api))

    def rollouts(self) -> list[Object]:
        return self.kubectl.all("modelrollouts", NS)

    def end(self, name: str, outcome: str) -> None:
        """As its controller would."""
        status = {"status": {"phase": "Done", "outcome": outcome, "reasons": ["a test said so"]}}
        self.kubectl.must("patch", "modelrollout", name, "-n", NS, "--subresource=status", "--type=merge",
                          f"-p={json.dumps(status)}", account=ROLLOUT)  # fmt: skip

    def serve(self, rollout: Object) -> None:
        """As its controller would, where there is none."""
        self.kubectl.must("create", "-f", "-", manifests=[first_inference_service(rollout)], account=ROLLOUT)
        until(lambda: ready(self.kubectl, "rewriter") and served(self.kubectl), "the rewriter is served")

    def audit(self, *more: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", QINGLAN, "audit", "rewriter", "--live", "-n", NS, *more]
        environment = {**os.environ, **self.s3.environment, "KUBECONFIG": str(self.kubectl.kubeconfig)}
        return subprocess.run(
            [*command, "--trust", str(self.old.keys / TRUST_FILE)],
            capture_output=True,
            text=True,
            timeout=300,
            env=environment,
        )


@pytest.fixture(scope="module")
def house(cluster: Any, overlays: Overlays, s3: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    bucket, folder = secrets.token_hex(4), tmp_path_factory.mktemp("made")
    Client(s3.endpoint.removeprefix("http://"), s3.key, s3.secret, secure=False).make_bucket(bucket)
    kubectl, store = overlays.use("a100"), f"s3://{bucket}/fivedoctors"
    with pytest.MonkeyPatch.context() as patch:
        keys = use_keys(folder / "keys", patch)
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        old, new = (make_whole_release(folder / str(first), keys, first=first) for first in (0.5, 0.25))
        for release in (old, new):
            open_store(store).push(release.folder, digest(release.folder))
        yield World(kubectl, cluster, s3, store, old, new)


@pytest.fixture
def world(house: World) -> Iterator[World]:
    yield house
    house.kubectl.delete_all("isvc", NS)
    house.kubectl.delete_all("modelrollouts", NS)
    until(lambda: not served(house.kubectl), "the last model's pods are gone")


def test_the_steps_account_deploys_and_the_same_again_changes_nothing(world: World) -> None:
    first = world.deploy(world.old, rollout={"steps": [10, 100], "stepSeconds": 60})
    [before] = world.rollouts()
    again = world.deploy(world.old)

    assert (first.rollout, again.rollout) == ("rewriter-1", "rewriter-1")
    assert world.rollouts() == [before], "not even its resourceVersion"
    assert before["spec"]["release"]["digest"] == world.old.registered.release
    assert before["spec"]["steps"] == [10, 100]
    with pytest.raises(ConflictError, match=r"rewriter-1 is bringing .* \(not begun, 0 % of the traffic\)"):
        world.deploy(world.new)
    world.end("rewriter-1", "Promoted")
    assert world.deploy(world.new).rollout == "rewriter-2"


def test_a_dozen_deploys_at_once_make_one_rollout(world: World) -> None:
    def deploy_once(number: int) -> str:
        try:
            return world.deploy((world.old, world.new)[number % 2]).rollout
        except ConflictError as error:
            return str(error)

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(deploy_once, range(12)))

    assert len(world.rollouts()) == 1
    assert all("rewriter-1" in answer for answer in answers), answers


def test_an_account_without_rights_and_a_wrong_policy_are_refused_in_words(world: World) -> None:
    with pytest.raises(ConfigError, match=r"ServiceAccount qinglan-serving of qinglan may not list modelrollouts"):
        world.deploy(world.old, account="qinglan-serving")
    with pytest.raises(QinglanError, match="the last step is 100"):
        world.deploy(world.old, rollout={"steps": [5, 50]})
    assert world.rollouts() == []


@pytest.mark.parametrize("mode", ["Serverless", "Standard", "Auto"])
def test_the_rollout_makes_the_first_service_of_what_the_rollout_object_says(world: World, mode: str) -> None:
    world.deploy(world.old, rollout={"mode": mode})
    [rollout] = world.rollouts()

    world.serve(rollout)

    for pod in served(world.kubectl):
        assert pod["spec"]["initContainers"][0]["args"][0] == rollout["spec"]["release"]["uri"]
        assert pod["spec"]["initContainers"][0]["command"] == ["python", "-m", "serving.initialiser"]


def names(world: World) -> set[str]:
    return {pod["metadata"]["name"] for pod in served(world.kubectl)}


@pytest.mark.parametrize("mode", ["Standard", "Serverless"])
def test_a_live_audit_walks_from_what_is_served_to_its_release(world: World, mode: str) -> None:
    world.deploy(world.old, rollout={"mode": mode})
    [rollout] = world.rollouts()
    world.serve(rollout)
    world.end(rollout["metadata"]["name"], "Promoted")
    release = world.old.registered.release[:12]

    audited = world.audit()

    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert f"spec: {release}" in audited.stdout and f"pod {next(iter(names(world)))}: {release}" in audited.stdout
    assert f"{NAME} {release} intact" in audited.stdout and "✓ rl_model" in audited.stdout
    assert ("revision rewriter-predictor" in audited.stdout) is (mode == "Serverless")
    report = json.loads(world.audit("--json").stdout)
    assert [release["digest"] for release in report["releases"]] == [world.old.registered.release] and report[
        "findings"
    ] == []


def test_a_live_audit_names_what_no_rollout_has_brought_and_no_store_has(world: World) -> None:
    world.deploy(world.old, rollout={"mode": "Standard"})
    [rollout] = world.rollouts()
    stranger = copy.deepcopy(rollout)
    stranger["spec"]["release"]["uri"] = f"{world.store}/releases/{'9' * 64}"
    world.serve(stranger)

    audited = world.audit()

    assert audited.returncode == 9, audited.stdout + audited.stderr
    assert "no ModelRollout has brought" in audited.stdout and "9999" in audited.stdout
    assert "Traceback" not in audited.stderr


def test_a_live_audit_finds_altered_bytes_in_the_store(world: World, tmp_path: Path) -> None:
    world.deploy(world.new, rollout={"mode": "Standard"})
    world.serve(world.rollouts()[0])
    client = Client(world.s3.endpoint.removeprefix("http://"), world.s3.key, world.s3.secret, secure=False)
    bucket, prefix = world.store.removeprefix("s3://").split("/")
    (tmp_path / "bytes").write_bytes(b"others")
    client.fput_object(
        bucket, f"{prefix}/releases/{world.new.registered.release}/report.html", str(tmp_path / "bytes")
    )

    audited = world.audit()

    assert audited.returncode == 8, audited.stdout + audited.stderr
    assert "report.html" in audited.stdout + audited.stderr and "Traceback" not in audited.stderr
