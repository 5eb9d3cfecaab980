"""The tenant of the whole run: the demo's profile with a release and a deployment, and its Secrets."""

import base64
import re
from pathlib import Path

from pipelines.lines.config import load_config
from tests.cluster.plane.processes import Folder
from tests.kfp.backend.objects import Store
from tests.kfp.backend.runs.tenant import (
    PORTS,
    RELEASES,
    TENANT,
    Tenant,
    key_objects,
    profile_text,
    server_parts,
)
from tests.manifests.manifest_objects import MANIFESTS

STORE = Store("127.0.0.1:9000", "key", "secret")
DEMO = MANIFESTS.parent / "pipelines" / "configs" / TENANT / "demo.yaml"


def test_the_profile_is_the_demos_with_a_store_and_a_deployment(tmp_path: Path) -> None:
    (tmp_path / "profile.yaml").write_text(profile_text(DEMO.read_text()))

    profile, demo = load_config(TENANT, str(tmp_path / "profile.yaml")), load_config(TENANT, "demo")

    assert (profile.register_.store, profile.deploy.namespace if profile.deploy else None) == (RELEASES, "qinglan")
    assert profile.cluster.immutable_inputs and profile.register_.allow_stand_in
    assert profile.evaluate == demo.evaluate
    assert profile.ppo == demo.ppo


def test_a_step_that_trains_cannot_read_the_releasers_key() -> None:
    files = {name: name.encode() for name in ("builder.pem", "releaser.pem", "rollout.pem", "trust.yaml")}

    objects = {it["metadata"]["name"]: it for it in key_objects(files)}

    assert set(objects["qinglan-builder-key"]["data"]) == {"builder.pem"}
    assert base64.b64decode(objects["qinglan-rollout-key"]["data"]["rollout.pem"]) == b"rollout.pem"
    assert objects["qinglan-trust"]["data"] == {"trust.yaml": "trust.yaml"}


def test_each_server_listens_on_the_port_of_its_service(tmp_path: Path) -> None:
    parts = server_parts(Tenant(tmp_path), STORE)

    assert {part.name for part in parts} == set(PORTS)
    for part in parts:
        port = re.search(r"(--port |--web.listen-address=127.0.0.1:)(\d+)", " ".join(part.arguments))
        assert port and int(port[2]) == PORTS[part.name]
