"""Tests of the preflight's checks of needs that come hours later, on a real MinIO and a real API server."""

import itertools
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from kubernetes import client
from minio import Minio as Client
from minio import MinioAdmin
from minio.credentials.providers import StaticProvider

from pipelines.checks.cluster import cluster_reader
from pipelines.checks.cluster.cluster_checks import check_requirements
from pipelines.checks.cluster.cluster_reader import KFP_PERMISSIONS, read_cluster
from pipelines.checks.cluster.cluster_snapshot import StoreAnswer
from pipelines.checks.cluster.requirements import ImportedInputs, ReleaseStore, Requirements, RolloutTarget
from pipelines.checks.cluster.store_probe import probe_input, probe_store
from tests.cluster.plane.cluster import Cluster
from tests.cluster.servers import Minio

NAMES = itertools.count()
RUNNER, SECRET = "pipeline-runner", "qinglan-store"


class Bucket:
    """A bucket with a sheet, an empty object and a folder; and the Secret with the way there."""

    def __init__(self, s3: Minio) -> None:
        self.name, self._s3 = f"inputs-{next(NAMES)}", s3
        self._host = s3.endpoint.removeprefix("http://")
        store = Client(self._host, s3.key, s3.secret, secure=False)
        store.make_bucket(self.name)
        for key, text in {"q.xlsx": b"sheet", "empty": b"", "kb-old/a": b"1", "kb/a.jsonl": b"2"}.items():
            store.put_object(self.name, key, BytesIO(text), len(text))
        self.secret = {
            "AWS_ACCESS_KEY_ID": s3.key, "AWS_SECRET_ACCESS_KEY": s3.secret, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": s3.endpoint, "QINGLAN_S3_ENDPOINT": s3.endpoint,
        }  # fmt: skip

    def listing_only(self) -> dict[str, str]:
        """The same with a user that may list this bucket and read nothing of it."""
        admin = MinioAdmin(
            endpoint=self._host, credentials=StaticProvider(self._s3.key, self._s3.secret), secure=False
        )
        name = f"lists-{next(NAMES)}"
        right = {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [f"arn:aws:s3:::{self.name}"]}
        admin.user_add(name, "a-long-secret")
        admin.policy_add(name, policy={"Version": "2012-10-17", "Statement": [right]})
        admin.policy_set(name, user=name)
        return {**self.secret, "AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": "a-long-secret"}


@pytest.fixture
def bucket(s3: Minio) -> Bucket:
    return Bucket(s3)


@pytest.mark.parametrize("path", ["q.xlsx", "empty", "kb", "kb/"])
def test_inputs_that_are_there_are_read(bucket: Bucket, path: str) -> None:
    assert probe_input(f"s3://{bucket.name}/{path}", bucket.secret) is None


@pytest.mark.parametrize(
    ("uri", "answer"),
    [
        ("s3://{}/q.xls", StoreAnswer("absent", "it is not there")),
        ("minio://{}/k", StoreAnswer("absent", "it is not there")),  # the beginning of two names
        ("s3://no-{}/q.xlsx", StoreAnswer("absent", "the store has no such bucket")),
    ],
)
def test_inputs_that_are_not_there_are_absent(bucket: Bucket, uri: str, answer: StoreAnswer) -> None:
    assert probe_input(uri.format(bucket.name), bucket.secret) == answer


def test_a_key_that_lists_and_may_not_read_is_refused(bucket: Bucket) -> None:
    answer = probe_input(f"s3://{bucket.name}/q.xlsx", bucket.listing_only())

    assert answer == StoreAnswer("refused", f"{bucket.secret['AWS_ENDPOINT_URL_S3']} refuses the key (AccessDenied)")


def test_a_wrong_secret_is_refused_for_inputs_and_releases(bucket: Bucket) -> None:
    wrong = {**bucket.secret, "AWS_SECRET_ACCESS_KEY": "another"}

    answers = (probe_input(f"s3://{bucket.name}/q.xlsx", wrong), probe_store(f"s3://{bucket.name}", wrong))

    assert [answer and answer.state for answer in answers] == ["refused", "refused"]
    assert all("SignatureDoesNotMatch" in answer.why for answer in answers if answer)


def test_an_empty_store_of_releases_is_well_and_one_without_a_bucket_is_not(bucket: Bucket) -> None:
    assert probe_store(f"s3://{bucket.name}/tenants/new", bucket.secret) is None
    assert probe_store("s3://nobodys-bucket/x", bucket.secret) == StoreAnswer(
        "absent", "the store has no such bucket"
    )


def test_a_store_that_does_not_answer_is_silent(bucket: Bucket) -> None:
    away = {**bucket.secret, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}

    answer = probe_input(f"s3://{bucket.name}/q.xlsx", away)

    assert answer and answer.state == "silent" and "http://127.0.0.1:1 gives no answer from here" in answer.why


@pytest.mark.parametrize("lacking", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"])
def test_without_a_whole_key_nothing_is_tried(bucket: Bucket, lacking: str) -> None:
    held = {name: value for name, value in bucket.secret.items() if name != lacking}

    assert probe_input(f"s3://{bucket.name}/q.xls", held) is None


@pytest.fixture
def run(cluster: Cluster, bucket: Bucket, namespace: str) -> Iterator[Requirements]:
    """A run that deploys to its own namespace, with an account that may do what KFP takes, and the store's Secret."""
    core, rights = client.CoreV1Api(cluster.admin()), client.RbacAuthorizationV1Api(cluster.admin())
    core.create_namespaced_service_account(namespace, {"metadata": {"name": RUNNER}})
    core.create_namespaced_secret(namespace, {"metadata": {"name": SECRET}, "stringData": bucket.secret})
    rules = [right.rule for right in KFP_PERMISSIONS]
    rights.create_namespaced_role(namespace, {"metadata": {"name": "kfp"}, "rules": rules})
    binding = {
        "metadata": {"name": "kfp"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kfp"},
        "subjects": [{"kind": "ServiceAccount", "name": RUNNER, "namespace": namespace}],
    }
    rights.create_namespaced_role_binding(namespace, binding)
    inputs = ImportedInputs((f"s3://{bucket.name}/q.xlsx",), ("generate",), SECRET)
    store = ReleaseStore(f"s3://{bucket.name}/releases", ("register", "deploy"), SECRET)
    yield Requirements((), (), (), RUNNER, (inputs,), (RolloutTarget(namespace, ("deploy",)),), (store,))


def findings(cluster: Cluster, run: Requirements, namespace: str) -> list[str]:
    return [
        f"{check.what} {check.command}"
        for check in check_requirements(run, read_cluster(cluster.admin(), run, namespace))
    ]


def test_a_cluster_that_knows_no_rollouts_and_a_namespace_that_is_not_there_are_named(
    cluster: Cluster, run: Requirements, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_reader, "ROLLOUTS_API", "/apis/qinglan.example/v1")  # a real 404
    nowhere = run._replace(rollouts=(RolloutTarget("qinglan-nowhere", ("deploy",)),))

    kind, absent = findings(cluster, nowhere, namespace)

    assert "does not know modelrollouts.qinglan.dev" in kind
    assert "in namespace qinglan-nowhere, which is not there" in absent


def test_an_account_without_what_kfp_takes_and_an_input_that_is_not_there_are_named(
    cluster: Cluster, run: Requirements, namespace: str
) -> None:
    rights: Any = client.RbacAuthorizationV1Api(cluster.admin())
    rights.delete_namespaced_role_binding("kfp", namespace)
    lost = run._replace(inputs=(run.inputs[0]._replace(uris=("s3://no-bucket/q.xlsx",)),), rollouts=(), releases=())

    denied, absent = findings(cluster, lost, namespace)

    assert "may not create, patch workflowtaskresults; get configmaps kfp-launcher" in denied
    assert "s3://no-bucket/q.xlsx cannot be read with the key in Secret qinglan-store" in absent
