"""A container's command, environment and files, as Kubernetes makes them of a pod."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.kfp.backend.pods.pod_spec import (
    MissingReference,
    Mount,
    command_line,
    environment,
    expand,
    mounts,
    service_hosts,
    volume_files,
)

POD: dict[str, Any] = {
    "metadata": {"name": "step", "namespace": "qinglan", "uid": "u-1", "labels": {"pipeline/runid": "r-1"}},
    "spec": {"nodeName": "gpu-1", "serviceAccountName": "pipeline-runner"},
}
CONTENT = {
    ("secret", "keys"): {"builder.pem": b"key", "other.pem": b"other"},
    ("configMap", "trust"): {"trust.yaml": b"policy"},
}  # fmt: skip


class FixedLookup:
    def data(self, kind: str, name: str) -> Mapping[str, bytes] | None:
        return CONTENT.get((kind, name))

    def token(self, audience: str, seconds: int) -> bytes:
        return f"token for {audience} {seconds}".encode()


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a $(NAME) b", "a value b"),
        ("$(UNKNOWN) stays, as $(python -m x) and $NAME do", "$(UNKNOWN) stays, as $(python -m x) and $NAME do"),
        ("$$(NAME) is escaped", "$(NAME) is escaped"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expanded: str) -> None:
    assert expand(text, {"NAME": "value"}) == expanded


def test_a_command_sees_the_variables_that_the_container_defines() -> None:
    container = {
        "command": ["sh", "-c"], "args": ["echo $(ALL)"],
        "env": [{"name": "FIRST", "value": "1"}, {"name": "ALL", "value": "$(FIRST)+$(HOME)"}],
    }  # fmt: skip

    variables = environment(POD, container, FixedLookup(), {"HOME": "/root"})

    assert command_line(container, variables) == ["sh", "-c", "echo 1+/root"]


def test_variables_come_from_the_pod_secrets_and_config_maps() -> None:
    container = {
        "envFrom": [
            {"configMapRef": {"name": "trust"}, "prefix": "T_"}, {"secretRef": {"name": "no", "optional": True}},
        ],
        "env": [
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "builder.pem"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "RUN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['pipeline/runid']"}}},
            {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "no", "optional": True}}},
        ],
    }  # fmt: skip

    variables = environment(POD, container, FixedLookup(), {})

    assert variables == {"T_trust.yaml": "policy", "KEY": "key", "NODE": "gpu-1", "RUN": "r-1"}


@pytest.mark.parametrize(
    "container",
    [
        {"envFrom": [{"secretRef": {"name": "absent"}}]},
        {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "k"}}}]},
        {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "absent"}}}]},
    ],
)
def test_what_is_missing_is_waited_for_and_not_left_out(container: dict[str, Any]) -> None:
    with pytest.raises(MissingReference, match="absent"):
        environment(POD, container, FixedLookup(), {})


def test_a_projected_volume_holds_token_and_chosen_files() -> None:
    sources = [
        {"serviceAccountToken": {"path": "token", "audience": "kfp", "expirationSeconds": 600}},
        {"configMap": {"name": "trust", "items": [{"key": "trust.yaml", "path": "deep/policy.yaml"}]}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]

    files = volume_files(POD, {"name": "v", "projected": {"sources": sources}}, FixedLookup())

    assert files == {"token": b"token for kfp 600", "deep/policy.yaml": b"policy", "name": b"step"}


def test_outer_mounts_come_before_inner_ones() -> None:
    container = {
        "volumeMounts": [
            {"name": "inner", "mountPath": "/a/b/c", "subPath": "x"}, {"name": "outer", "mountPath": "/a"},
            {"name": "token", "mountPath": "/var/run/secrets/t"},
        ]
    }  # fmt: skip

    assert mounts(container) == [
        Mount("outer", "", "/a"), Mount("inner", "x", "/a/b/c"), Mount("token", "", "/run/secrets/t"),
    ]  # fmt: skip


def test_a_pod_knows_services_of_its_own_namespace_by_their_short_name() -> None:
    services = [
        {"metadata": {"name": name, "namespace": owner}} for name, owner in (("rag", "qinglan"), ("ui", "kfp"))
    ]

    hosts = service_hosts(services, "qinglan", "step").splitlines()

    assert "127.0.0.1 rag rag.qinglan rag.qinglan.svc rag.qinglan.svc.cluster.local" in hosts
    assert "127.0.0.1 ui.kfp ui.kfp.svc ui.kfp.svc.cluster.local" in hosts
