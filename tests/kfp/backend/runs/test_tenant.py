"""The tenant of the whole run: the demo's profile with a release and a deployment, and its Secrets."""

import base64
import re
from pathlib import Path

import yaml

from pipelines.lines.config import load_config
from tests.cluster.plane.processes import Folder
from tests.kfp.backend.build import Dist
from tests.kfp.backend.objects import PERSON, Store
from tests.kfp.backend.page import page_part, without_missing
from tests.kfp.backend.runs.tenant import (
    OVERLAY,
    PORTS,
    RELEASES,
    TENANT,
    Tenant,
    gateway_settings,
    key_objects,
    profile_text,
    server_parts,
    store_env,
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


def test_every_service_of_the_gateway_is_on_this_machine() -> None:
    text = gateway_settings((MANIFESTS / OVERLAY / TENANT / "gateway.yaml").read_text())

    settings = yaml.safe_load(text)
    addresses = {settings["teacher"]["base_url"], settings["examiner"]["base_url"], settings["rag"]["base_url"]}
    assert addresses == {f"http://127.0.0.1:{PORTS['teacher']}/v1", f"http://127.0.0.1:{PORTS['rag']}"}


def test_a_step_that_trains_cannot_read_the_releasers_key() -> None:
    files = {name: name.encode() for name in ("builder.pem", "releaser.pem", "rollout.pem", "trust.yaml")}

    objects = {it["metadata"]["name"]: it for it in key_objects(files)}

    assert set(objects["qinglan-builder-key"]["data"]) == {"builder.pem"}
    assert base64.b64decode(objects["qinglan-rollout-key"]["data"]["rollout.pem"]) == b"rollout.pem"
    assert objects["qinglan-trust"]["data"] == {"trust.yaml": "trust.yaml"}


def test_the_store_is_named_for_our_steps_and_for_kfps_launcher() -> None:
    settings = dict(line.split("=", 1) for line in store_env(STORE).splitlines())

    assert settings["QINGLAN_S3_ENDPOINT"] == settings["AWS_ENDPOINT_URL_S3"] == "http://127.0.0.1:9000"


def test_each_server_listens_on_the_port_of_its_service(tmp_path: Path) -> None:
    parts = server_parts(Tenant(tmp_path), STORE)

    assert {part.name for part in parts} == set(PORTS)
    for part in parts:
        port = re.search(r"(--port |--web.listen-address=127.0.0.1:)(\d+)", " ".join(part.arguments))
        assert port and int(port[2]) == PORTS[part.name]


def test_the_page_has_no_package_that_nothing_imports() -> None:
    package = {"devDependencies": {"fs": "0.0.1-security", "vite": "1"}}
    lock = {
        "packages": {
            "": {"devDependencies": {"fs": "0.0.1-security"}},
            "node_modules/fs": {},
            "node_modules/vite": {},
        }
    }

    assert without_missing(package) == {"devDependencies": {"vite": "1"}}
    assert without_missing(lock) == {"packages": {"": {"devDependencies": {}}, "node_modules/vite": {}}}


def test_the_page_asks_the_api_and_metadata_of_this_back_end(tmp_path: Path) -> None:
    settings = page_part(Folder(tmp_path), Dist(tmp_path / "dist"), STORE, 20003).settings

    assert settings["METADATA_ENVOY_SERVICE_SERVICE_PORT"] == "20003"
    assert settings["ML_PIPELINE_SERVICE_HOST"] == "127.0.0.1"
    assert settings["KUBEFLOW_USERID_HEADER"] == "kubeflow-userid"
    assert PERSON not in settings.values()
