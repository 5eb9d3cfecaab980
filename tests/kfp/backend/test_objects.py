"""The objects of the back end: upstream's settings are kept, but for the store's address."""

import base64
from typing import Any

import yaml

from tests.kfp.backend.objects import Store, argo_settings, profile_objects

STORE = Store("127.0.0.1:9000", "key", "secret")
REPOSITORY = {"archiveLogs": True, "s3": {"endpoint": "seaweedfs", "keyFormat": "k"}}
PATCH: dict[str, Any] = {
    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "workflow-controller-configmap"},
    "data": {
        "artifactRepository": yaml.safe_dump(REPOSITORY),
        "workflowDefaults": "spec: {templateDefaults: {retryStrategy: {limit: '2', retryPolicy: OnError}}}",
    },
}  # fmt: skip


def test_argo_has_upstreams_defaults_and_this_store() -> None:
    settings = argo_settings(PATCH, STORE)

    repository = yaml.safe_load(settings["data"]["artifactRepository"])
    assert settings["data"]["workflowDefaults"] == PATCH["data"]["workflowDefaults"]
    assert repository["s3"] == {"endpoint": STORE.endpoint, "bucket": "mlpipeline", "keyFormat": "k"}
    assert settings["metadata"] == {"name": "workflow-controller-configmap", "namespace": "kubeflow"}
    # Argo's metrics would listen beyond loopback.
    data = settings["data"]
    assert [yaml.safe_load(data[name]) for name in ("metricsConfig", "telemetryConfig")] == [{"enabled": False}] * 2


def test_a_profile_holds_what_the_launcher_reads() -> None:
    objects = {(it["kind"], it["metadata"]["name"]): it for it in profile_objects("team", STORE)}

    launcher = objects["ConfigMap", "kfp-launcher"]["data"]
    provider = yaml.safe_load(launcher["providers"])["minio"]["default"]
    key = objects["Secret", provider["credentials"]["secretRef"]["secretName"]]["data"]
    assert launcher["defaultPipelineRoot"] == "minio://mlpipeline/private-artifacts/team/v2/artifacts"
    assert provider["endpoint"] == STORE.endpoint
    assert base64.b64decode(key[provider["credentials"]["secretRef"]["secretKeyKey"]]) == b"secret"
