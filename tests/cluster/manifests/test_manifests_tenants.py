"""Two tenants, with real tokens: neither sees what is the other's, nor more of its own than it needs."""

from typing import Any

import pytest

from tests.cluster.overlays import Overlays

OWN_SPACE, OTHER = "qinglan-chengla", "qinglan-fivedoctors"
JOB = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
FORBIDDEN, OK, CREATED = 403, 200, 201


@pytest.fixture(scope="module")
def tenants(cluster: Any, overlays: Overlays) -> Any:
    overlays.use("multi-tenant")
    return cluster


def status(api: Any, path: str, method: str = "GET", body: Any = None) -> int:
    from kubernetes.client import ApiException

    try:
        answer = api.call_api(
            path, method, body=body, auth_settings=["BearerToken"], _preload_content=False,
            header_params={"Content-Type": "application/json"},
        )  # fmt: skip
    except ApiException as error:
        return int(error.status)
    return int(answer[1])


@pytest.mark.parametrize("account", ["pipeline-runner", "qinglan-janitor", "qinglan-rollout", "qinglan-gateway"])
@pytest.mark.parametrize("namespace", [OWN_SPACE, OTHER])
def test_no_account_reads_secrets_through_the_api(tenants: Any, account: str, namespace: str) -> None:
    api = tenants.account(OWN_SPACE, account)

    for name in ("qinglan-store", "qinglan-paid-api"):
        assert status(api, f"/api/v1/namespaces/{namespace}/secrets/{name}") == FORBIDDEN
    assert status(api, f"/api/v1/namespaces/{namespace}/secrets") == FORBIDDEN
    assert status(api, "/api/v1/secrets") == FORBIDDEN


def test_a_step_manages_jobs_of_its_own_tenant_alone(tenants: Any) -> None:
    api = tenants.account(OWN_SPACE, "pipeline-runner")
    job = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "one"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "pytorch", "image": "one"}]}}}}},
    }  # fmt: skip

    assert status(api, JOB.format(OWN_SPACE) + "?dryRun=All", "POST", job) == CREATED
    assert status(api, JOB.format(OTHER) + "?dryRun=All", "POST", job) == FORBIDDEN
    assert status(api, JOB.format(OWN_SPACE)) == OK
    assert status(api, JOB.format(OTHER)) == FORBIDDEN
    for kind in ("pods", "events"):
        assert status(api, f"/api/v1/namespaces/{OWN_SPACE}/{kind}") == OK
        assert status(api, f"/api/v1/namespaces/{OTHER}/{kind}") == FORBIDDEN


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/api/v1/namespaces/{}/pods"),
        ("POST", "/api/v1/namespaces/{}/secrets"),
        ("POST", "/api/v1/namespaces/{}/serviceaccounts/qinglan-gateway/token"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings"),
        ("POST", "/apis/serving.kserve.io/v1beta1/namespaces/{}/inferenceservices"),
        ("POST", "/apis/apps/v1/namespaces/{}/deployments"),
        ("DELETE", "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/default-deny"),
        ("GET", "/api/v1/namespaces/{}/configmaps"),
    ],
)
def test_a_step_can_do_nothing_else(tenants: Any, method: str, path: str) -> None:
    api = tenants.account(OWN_SPACE, "pipeline-runner")

    assert status(api, path.format(OWN_SPACE), method, {} if method == "POST" else None) == FORBIDDEN


def test_the_janitor_finds_and_deletes_jobs_and_makes_none(tenants: Any) -> None:
    api = tenants.account(OWN_SPACE, "qinglan-janitor")

    assert status(api, JOB.format(OWN_SPACE)) == OK
    assert status(api, JOB.format(OWN_SPACE) + "/none", "DELETE") == 404
    assert status(api, JOB.format(OWN_SPACE), "POST", {}) == FORBIDDEN
    assert status(api, JOB.format(OTHER)) == FORBIDDEN
