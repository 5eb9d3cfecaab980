"""The shadow as its manifests install it: with its account's rights and the payload log's key, and nothing else.

Real: API server, KServe, Knative's tag route, S3 with a key of that bucket alone, two rewriters, a RAG service, and a
gateway that knows hosts alone, for the tag route's name resolves nowhere.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from minio import Minio as Client
from minio import MinioAdmin
from minio.credentials.providers import StaticProvider

from qinglan.errors import ConfigError
from qinglan.files.digests import digest
from qinglan.files.files import dump_line
from qinglan.processes.services import run_service
from qinglan.store import open_store
from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests.test_manifests_tenants import FORBIDDEN, OK, status
from tests.cluster.overlays import Overlays
from tests.cluster.rollout.rollout_world import login
from tests.cluster.rollout.test_kserve import NEW, NS, OLD, ROLLOUT, put, replaced, shares, state
from tests.cluster.rollout.test_modelrollout import rollout as modelrollout
from tests.cluster.servers import Minio
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import Object, pods
from tests.models.tiny_rewriter import TAUGHT, taught_model
from tests.serving.model_servers import V1
from tests.serving.rag.conftest import passages
from tests.serving.rollout.shadow.conftest import SPOILED
from tests.serving.rollout.shadow.ingress import Ingress, ingress

ACCOUNT = "qinglan-shadow"
BUCKET, OTHER_BUCKET = "payloads-of-shadow", "releases-of-shadow"
RIGHTS = ["s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:GetBucketLocation"]
"""As payloads.env.example says."""

QUERIES = [query for query in TAUGHT if "虾青素" in query]


class House(NamedTuple):
    kubectl: Kubectl
    cluster: Any
    manifests: Sequence[Object]
    """Applied objects."""

    folder: Path
    key: Mapping[str, str]
    """Environment variables that the Secret qinglan-payloads gives to a container."""

    def arguments(self, owner: str, *instead: str) -> list[str]:
        """Return a container of ours with the key, as the kubelet fills it in; `instead` replaces arguments."""
        (result,) = [
            container
            for whole in self.manifests for pod in pods(whole) if pod.owner == owner
            for container in pod.spec["containers"] if "qinglan-payloads" in str(container)
        ]  # fmt: skip
        replaced = tuple(f"{argument.partition('=')[0]}=" for argument in instead)
        rest = [arg for arg in result["args"] if not arg.startswith(replaced)]
        return [
            *(argument.replace("$(QINGLAN_PAYLOADS)", self.key["QINGLAN_PAYLOADS"]) for argument in rest),
            *instead,
        ]


@pytest.fixture(scope="module")
def house(cluster: Any, overlays: Overlays, s3: Minio, tmp_path_factory: pytest.TempPathFactory) -> House:
    kubectl = overlays.use("single-tenant")
    return House(kubectl, cluster, overlays.objects, tmp_path_factory.mktemp("shadow"), key_of_the_bucket(s3))


def key_of_the_bucket(s3: Minio) -> dict[str, str]:
    host, name = s3.endpoint.removeprefix("http://"), "payloads-of-a-tenant"
    client = Client(host, s3.key, s3.secret, secure=False)
    for bucket in (BUCKET, OTHER_BUCKET):
        client.make_bucket(bucket)
    admin = MinioAdmin(endpoint=host, credentials=StaticProvider(s3.key, s3.secret), secure=False)
    resources = [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]
    rule = {"Effect": "Allow", "Action": RIGHTS, "Resource": resources}
    admin.user_add(name, "a-long-secret")
    admin.policy_add(name, policy={"Version": "2012-10-17", "Statement": [rule]})
    admin.policy_set(name, user=name)
    return {
        "QINGLAN_PAYLOADS": f"s3://{BUCKET}/fivedoctors", "QINGLAN_S3_ENDPOINT": s3.endpoint,
        "AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": "a-long-secret",
        "QINGLAN_SHADOW_TOKEN": "0123456789abcdef" * 4,
    }  # fmt: skip


@pytest.fixture
def canary(house: House) -> Iterator[str]:
    """A canary at 0 % under judgement: where its tag route leads, by Knative."""
    put(house.kubectl, "knative/stable")
    until(lambda: shares(house.kubectl) == {OLD: 100}, "the stable model has all of the traffic")
    service = state("knative/canary")
    service["spec"]["predictor"]["canaryTrafficPercent"] = 0
    assert replaced(house.kubectl, service) == ""
    until(lambda: shares(house.kubectl) == {NEW: 0, OLD: 100}, "a canary without users")
    yield service["metadata"]["name"]
    house.kubectl("delete", "modelrollout", "--all", "-n", NS)
    house.kubectl.delete_all("isvc", NS)


def judged(house: House, canary: str, stable: str) -> None:
    """The controller's word that these two models are compared."""
    rollout = modelrollout(NS)
    rollout["spec"]["release"]["model"] = canary
    status_patch = {"status": {"phase": "Analyse", "stable": {"uri": "s3://q/old", "digest": OLD, "model": stable}}}
    house.kubectl.must("create", "-f", "-", manifests=[rollout])
    house.kubectl.must("patch", "modelrollout", "rewriter-1", "-n", NS, "--subresource=status", "--type=merge",
                       f"-p={json.dumps(status_patch)}", account=ROLLOUT)  # fmt: skip


def hosts(house: House) -> tuple[str, str]:
    """Return the hosts of the service itself and of its newest revision only."""
    result = house.kubectl.get("isvc", "rewriter", NS)["status"]["components"]["predictor"]
    (tagged,) = [target["url"] for target in result["traffic"] if target.get("latestRevision")]
    return result["url"].removeprefix("http://"), tagged.removeprefix("http://")


def test_the_program_compares_by_the_tag_route_with_its_own_rights_and_key_alone(
    house: House, canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        **house.key,
        "KUBECONFIG": str(login(house.cluster, ACCOUNT, house.folder / "login")),
    }.items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:
        door = stack.enter_context(ingress())
        good, bad = (house.folder / name for name in ("good", "bad"))
        service_host, tag = hosts(house)
        for folder, taught, host in ((good, TAUGHT, service_host), (bad, SPOILED, tag)):
            options = house.arguments(
                "ServingRuntime/qinglan-rewriter-cpu", f"--model={taught_model(folder, taught=taught)}",
                "--name=rewriter", "--host=127.0.0.1", "--port=0",
            )  # fmt: skip
            door.routes[host] = stack.enter_context(
                run_service("serving.rewriter", options, folder.with_suffix(".log"))
            )
        judged(house, digest(bad), digest(good))
        url = stack.enter_context(shadow(house, door, rag(house, stack)))

        def lost() -> bool:
            for query in QUERIES:
                users_ask(door, service_host, query)
            return counted(url, "qinglan_shadow_pairs_total", 'outcome="lost"') >= 2

        until(lost, f"pairs that the spoiled canary has lost; see {house.folder}/shadow.log")
        pair = f'canary="{digest(bad)[:12]}",outcome="lost",stable="{digest(good)[:12]}"'
        assert counted(url, "qinglan_shadow_pairs_total", pair) >= 2
        assert counted(url, "qinglan_shadow_pairs_total", 'outcome="won"') == 0
        assert counted(url, "qinglan_shadow_failures_total") == 0
    shadowed_hosts = {request.host for request in door.requests if "x-qinglan-shadow" in request.headers}
    assert shadowed_hosts == {tag}, "only the canary, by its own name"
    assert tag.startswith("latest-rewriter-predictor")
    assert not any(query in (house.folder / "shadow.log").read_text() for query in QUERIES), "no text of a user"


def rag(house: House, stack: ExitStack) -> str:
    known = house.folder / "kb.jsonl"
    known.write_bytes(b"".join(map(dump_line, passages("fivedoctors"))))
    arguments = ["--kb", f"fivedoctors={known}", "--index-root", str(house.folder / "index"), "--port", "0"]
    return stack.enter_context(run_service("serving.rag", arguments, house.folder / "rag.log"))


def shadow(house: House, door: Ingress, search: str) -> Any:
    """With the Deployment's own arguments, but for who answers on loopback."""
    options = house.arguments(
        "Deployment/qinglan-shadow", f"--rag={search}", f"--ingress={door.url}", "--host=127.0.0.1", "--port=0",
        "--share=1", "--score-threshold=0",
    )  # fmt: skip
    return run_service("serving.rollout.shadow", options, house.folder / "shadow.log")


def users_ask(door: Ingress, host: str, query: str) -> None:
    body = {"instances": [{"query": query, "tenant_id": "fivedoctors"}]}
    answer = httpx.post(door.url + V1, json=body, headers={"host": host}, trust_env=False, timeout=60, verify=False)
    answer.raise_for_status()


def counted(url: str, name: str, labels: str = "") -> float:
    lines = httpx.get(f"{url}/metrics", trust_env=False, timeout=60, verify=False).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{") and labels in line)


def test_the_key_opens_the_payload_log_and_no_other_bucket(house: House) -> None:
    store = open_store(house.key["QINGLAN_PAYLOADS"], house.key)
    assert store.backend.create("payloads/2026-01-01/one.jsonl", b"{}\n")
    assert store.backend.children("payloads/2026-01-01/") == ["one.jsonl"]

    with pytest.raises(ConfigError, match="AccessDenied"):
        open_store(f"s3://{OTHER_BUCKET}/fivedoctors", house.key).backend.children("releases/")


ROLLOUTS = "/apis/qinglan.dev/v1alpha1/namespaces/{}/modelrollouts"
SERVICES = "/apis/serving.kserve.io/v1beta1/namespaces/{}/inferenceservices"


def test_its_account_reads_the_rollouts_and_the_rewriter(house: House, canary: str) -> None:
    api = house.cluster.account(NS, ACCOUNT)

    assert status(api, ROLLOUTS.format(NS)) == OK
    assert status(api, SERVICES.format(NS) + f"/{canary}") == OK


@pytest.mark.parametrize(
    "method, path",
    [
        ("GET", SERVICES), ("GET", SERVICES + "/style"), ("GET", ROLLOUTS + "?watch=true"),
        ("POST", SERVICES), ("POST", ROLLOUTS),
        ("PATCH", SERVICES + "/rewriter"), ("PATCH", ROLLOUTS + "/rewriter-1"), ("DELETE", SERVICES + "/rewriter"),
        ("PATCH", ROLLOUTS + "/rewriter-1/status"), ("DELETE", ROLLOUTS + "/rewriter-1"),
        ("GET", "/api/v1/namespaces/{}/secrets/qinglan-payloads"), ("GET", "/api/v1/namespaces/{}/secrets"),
        ("GET", "/api/v1/namespaces/{}/pods"), ("POST", "/api/v1/namespaces/{}/pods"),
        ("GET", "/api/v1/namespaces/{}/configmaps"), ("POST", "/api/v1/namespaces/{}/events"),
        ("PATCH", "/apis/serving.kserve.io/v1alpha1/namespaces/{}/servingruntimes/qinglan-rewriter-cpu"),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/{}/leases"),
    ],
)  # fmt: skip
def test_its_account_can_do_nothing_else(house: House, method: str, path: str) -> None:
    api, writes = house.cluster.account(NS, ACCOUNT), method in ("POST", "PATCH")

    assert status(api, path.format(NS), method, {} if writes else None) == FORBIDDEN
    for allowed_path in (ROLLOUTS, SERVICES + "/rewriter"):
        assert status(api, allowed_path.format("default")) == FORBIDDEN, "nor what it may at home elsewhere"
