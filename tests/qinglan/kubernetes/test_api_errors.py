"""Each refusal is a message with the next step."""

import json
from pathlib import Path

import pytest

from qinglan.errors import ConfigError, OutageError, QinglanError
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import connect
from tests.servers.broken_kubeconfigs import BROKEN

HOST, NAMESPACE = "https://10.0.0.1:6443", "team"


def status(code: int, message: str) -> str:
    return json.dumps({"kind": "Status", "code": code, "message": message})


FORBIDDEN = (
    'pytorchjobs.kubeflow.org is forbidden: User "system:serviceaccount:team:pipeline-runner" cannot create resource '
    '"pytorchjobs" in API group "kubeflow.org" in the namespace "team"'
)
QUOTA = 'pytorchjobs.kubeflow.org "x" is forbidden: exceeded quota: jobs, requested: count/pytorchjobs=1'


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        (ApiError("GET", "pods", 0, "Connection refused"), OutageError, "Check that it runs and can be reached"),
        (ApiError("GET", "pods", 0, "CERTIFICATE_VERIFY_FAILED certificate"), ConfigError, "Renew KUBECONFIG"),
        (ApiError("GET", "pods", 503, status(503, "starting")), OutageError, "did not read pods in team: starting"),
        (ApiError("GET", "pods", 401, status(401, "Unauthorized")), ConfigError, "its token has expired"),
        (
            ApiError("POST", "pytorchjobs", 403, status(403, FORBIDDEN)), ConfigError,
            "ServiceAccount pipeline-runner of team may not create pytorchjobs in namespace team",
        ),
        (
            ApiError("GET", "pods", 403, status(403, 'User "ann" cannot list resource "pods" in API group ""')),
            ConfigError, "kubectl auth can-i list pods -n team --as ann",
        ),
        (ApiError("POST", "pytorchjobs", 403, status(403, QUOTA)), ConfigError, "exceeded quota: jobs"),
        (
            ApiError("GET", "pytorchjobs", 404, "404 page not found\n"), ConfigError,
            "knows no PyTorchJobs: training-operator is not installed",
        ),
        (
            ApiError("POST", "pytorchjobs", 404, status(404, 'namespaces "team" not found')), ConfigError,
            'namespaces "team" not found. Check the namespace',
        ),
        (ApiError("POST", "pytorchjobs", 422, status(422, "spec.x: Invalid value")), ConfigError, "spec.x: Invalid"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_do(refusal: ApiError, kind: type[QinglanError], words: str) -> None:
    error = explain_api_error(refusal, HOST, NAMESPACE)

    assert type(error) is kind
    assert words in str(error)
    assert HOST in str(error) or "kubectl auth can-i" in str(error)


def test_without_a_cluster_the_way_to_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"Set KUBECONFIG to a file that `kubectl` works with"):
        connect({})
    with pytest.raises(ConfigError, match="no file /nowhere"):
        connect({"KUBECONFIG": "/nowhere"})


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_kubeconfig_is_a_matter_of_settings(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(text)

    with pytest.raises(ConfigError, match=r"KUBECONFIG .*/config(:[12])?: "):
        connect({"KUBECONFIG": str(tmp_path / "config")})


def test_in_a_pod_without_a_token_the_login_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", "/nowhere/token")
    with pytest.raises(ConfigError, match="No login to a cluster"):
        connect({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"})
