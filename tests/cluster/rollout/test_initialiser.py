"""Our storage initialiser: in the pods that KServe makes, and with their environment against a real S3."""

import io
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from minio import Minio as Client

from qinglan.files.digests import digest
from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys
from qinglan.store import open_store
from tests.cluster.kubectl import Kubectl
from tests.cluster.overlays import Overlays
from tests.cluster.rollout.test_kserve import NS, ROLLOUT, put, served, state
from tests.cluster.servers import Minio
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import Object
from tests.releases.registered_release import SignedRelease, make_release, use_keys


@pytest.fixture(scope="module")
def house(overlays: Overlays) -> Kubectl:
    return overlays.use("a100")


@pytest.fixture
def nothing_served(house: Kubectl) -> Iterator[Kubectl]:
    yield house
    house.delete_all("isvc", NS)
    until(lambda: not served(house), "the last model's pods are gone")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> SignedRelease:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        return make_release(folder / "made", use_keys(folder / "keys", patch))


@pytest.mark.parametrize("name", ["standard/stable", "standard/canary", "knative/stable", "knative/canary", "style"])
def test_every_pod_of_a_model_has_it_first_and_alone(nothing_served: Kubectl, name: str) -> None:
    if name.endswith("canary"):
        put(nothing_served, name.replace("canary", "stable"))
    expected = releases_of(put(nothing_served, name))
    until(
        lambda: expected <= {initialiser(manifest)["args"][0] for manifest in served(nothing_served)},
        f"pods of {expected}",
    )

    for manifest in served(nothing_served):
        (first,) = manifest["spec"]["initContainers"]
        assert first["image"] == "qinglan/cpu:0.1.0"
        assert first["command"] == ["python", "-m", "serving.initialiser"]
        assert first["args"][1] == "/mnt/models"
        report = {it["name"]: it for it in first["env"]}["QINGLAN_TRUST"]["valueFrom"]
        assert report == {"configMapKeyRef": {"name": "qinglan-trust", "key": "trust.yaml"}}
        assert first["terminationMessagePolicy"] == "FallbackToLogsOnError", "why it refused is in the pod's status"


def releases_of(manifest: Object) -> set[str]:
    predictors = [manifest["spec"]["predictor"], *(it["predictor"] for it in manifest["spec"].get("canary", ()))]
    return {it["model"]["storageUri"] for it in predictors}


def initialiser(pod: Object) -> Object:
    result: Object = pod["spec"]["initContainers"][0]
    return result


@pytest.fixture(scope="module")
def container(house: Kubectl) -> Object:
    """The init container of a pod of the style model, as KServe has filled it in."""
    house.must("create", "-f", "-", manifests=[state("style")], account=ROLLOUT)
    until(lambda: served(house), "a pod of the style model")
    result = initialiser(served(house)[0])
    house.delete_all("isvc", NS)
    return result


def environment(container: Object, s3: Minio, trust: str) -> dict[str, str]:
    """Return the environment of that container, with this test's MinIO in the Secret, and the house's policy."""
    secret = {"AWS_ACCESS_KEY_ID": s3.key, "AWS_SECRET_ACCESS_KEY": s3.secret, "trust.yaml": trust}
    result = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "OMP_NUM_THREADS")}
    for variable in container["env"]:
        source = variable.get("valueFrom") or {}
        key = next(iter(source.values()))["key"] if source else ""
        result[variable["name"]] = secret[key] if key else variable["value"]
    return {**result, "AWS_ENDPOINT_URL": s3.endpoint}


def run(
    container: Object, uri: str, into: Path, environment_of_pod: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    into.mkdir(exist_ok=True)
    command = [sys.executable, *container["command"][1:], uri, str(into)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(environment_of_pod))


@pytest.fixture
def bucket(s3: Minio) -> tuple[Client, str]:
    client, name = Client(s3.endpoint.removeprefix("http://"), s3.key, s3.secret, secure=False), secrets.token_hex(4)
    client.make_bucket(name)
    return client, name


def push(release: Path, s3: Minio, bucket: str) -> str:
    return open_store(f"s3://{bucket}/house", s3.environment).push(release, digest(release))


def test_with_what_kserve_gives_it_it_lays_a_proven_release_down(
    container: Object, s3: Minio, bucket: tuple[Client, str], signed: SignedRelease, tmp_path: Path
) -> None:
    environment_of_pod = environment(container, s3, (signed.keys / TRUST_FILE).read_text())
    uri = push(signed.folder, s3, bucket[1])

    done = run(container, uri, tmp_path / "models", environment_of_pod)

    assert done.returncode == 0, done.stderr
    assert digest(tmp_path / "models") == signed.registered.release


def test_altered_bytes_other_keys_and_a_missing_statement_are_refused(
    container: Object, s3: Minio, bucket: tuple[Client, str], signed: SignedRelease, tmp_path: Path
) -> None:
    trust = (signed.keys / TRUST_FILE).read_text()
    ensure_keys(tmp_path / "others")
    environment_of_pod = environment(container, s3, trust)
    uri = push(signed.folder, s3, bucket[1])
    lacking = shutil.copytree(signed.folder, tmp_path / "lacking")
    next(lacking.glob("lineage/*base*.dsse.json")).unlink()

    other_keys = environment_of_pod | {"QINGLAN_TRUST": (tmp_path / "others" / TRUST_FILE).read_text()}
    strangers = run(container, uri, tmp_path / "one", other_keys)
    unsaid = run(container, push(lacking, s3, bucket[1]), tmp_path / "two", environment_of_pod)
    key = f"house/releases/{signed.registered.release}/model/model.safetensors"
    bucket[0].put_object(bucket[1], key, io.BytesIO(b"x" * 100), 100)
    altered = run(container, uri, tmp_path / "three", environment_of_pod)

    assert strangers.returncode == 8 and "is not in the trust policy" in strangers.stderr
    assert unsaid.returncode == 8 and "names it, and it is not there" in unsaid.stderr
    assert altered.returncode == 3 and "not the bytes that were pushed" in altered.stderr
    for name in ("one", "two", "three"):
        assert [path for path in (tmp_path / name).rglob("*") if path.is_file()] == []


def test_a_store_that_does_not_answer_is_an_outage_and_kubernetes_tries_again(
    container: Object, s3: Minio, signed: SignedRelease, tmp_path: Path
) -> None:
    environment_of_pod = environment(container, s3, (signed.keys / TRUST_FILE).read_text()) | {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1"
    }

    done = run(
        container, f"s3://qinglan/good/releases/{signed.registered.release}", tmp_path / "models", environment_of_pod
    )

    assert done.returncode == 4 and "gave no answer" in done.stderr
