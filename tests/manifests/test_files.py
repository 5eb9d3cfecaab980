"""The manifests, file by file; no test here needs a cluster or kubectl."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from components.release.deploy.config import DeployConfig
from components.training.ppo.config import PpoConfig
from components.training.sft.config import SftConfig
from pipelines.graph.store_secret import FETCH_ENDPOINT, S3_KEYS, STORE_ENDPOINT, TOKEN
from pipelines.lines.config import TRAINING
from qinglan.config import load_yaml
from qinglan.http.http_client import CA_VARIABLE
from qinglan.llm.config import GatewayConfig
from qinglan.llm.host_allowlist import ALLOWED_VARIABLE, check_host
from tests.manifests.hardening import faults
from tests.manifests.manifest_objects import MANIFESTS, Object, objects, pods, resources

RESOURCES = resources()
IMAGES = {"qinglan/cpu:0.1.0", "qinglan/serve:0.1.0", "qinglan/style:0.1.0"}
STAND_INS = "qinglan/standins:0.1.0"
WHOLE = [(file, pod) for file, item in RESOURCES for pod in pods(item) if "image" in str(pod.spec)]
"""Templates of their own, and no patches of some lines of one."""

ROLLOUTS = {file: item for file, item in RESOURCES if item["kind"] == "InferenceService"}
STATES = ("stable", "canary", "promoted", "rolled-back")
CONFIGS = sorted((MANIFESTS / "overlays").rglob("gateway.yaml"))
PINNED = re.compile(r"s3://[a-z0-9./-]+/releases/[0-9a-f]{64}(/model/adapter)?")


@pytest.mark.parametrize("file, pod", WHOLE, ids=lambda value: value.owner if hasattr(value, "owner") else "")
def test_every_pod_is_hardened(file: Path, pod: Object) -> None:
    assert faults(pod) == []  # type: ignore[arg-type]


def test_the_pods_of_every_kind_are_looked_at() -> None:
    assert {pod.kind for _, pod in WHOLE} == {"Deployment", "CronJob", "ServingRuntime", "ClusterStorageContainer"}


@pytest.mark.parametrize("file, pod", WHOLE, ids=lambda value: value.owner if hasattr(value, "owner") else "")
def test_every_image_is_one_of_ours_or_kserves(file: Path, pod: Object) -> None:
    both = [*pod.spec.get("containers", ()), *pod.spec.get("initContainers", ())]  # type: ignore[attr-defined]

    laptop = "laptop-cluster" in file.parts
    assert {item["image"] for item in both} <= IMAGES | ({STAND_INS} if laptop else set())


def test_no_right_has_a_wildcard_and_no_account_changes_rights_or_enters_pods() -> None:
    rules = [rule for _, item in RESOURCES if item["kind"] in ("Role", "ClusterRole") for rule in item["rules"]]

    assert len(rules) >= 10
    for rule in rules:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not {"pods/exec", "pods/attach", "roles", "rolebindings", "serviceaccounts/token"} & {
            *rule["resources"]
        }
        assert not {"escalate", "bind", "impersonate"} & {*rule["verbs"]}
        assert "secrets" not in rule["resources"] or (rule["resourceNames"] and rule["verbs"] == ["get"])


def test_nothing_is_granted_beyond_the_namespace() -> None:
    assert not [item for _, item in RESOURCES if item["kind"] in ("ClusterRole", "ClusterRoleBinding")]


def test_only_who_asks_the_api_server_is_given_a_token() -> None:
    accounts = {item["metadata"]["name"]: item for _, item in RESOURCES if item["kind"] == "ServiceAccount"}
    mounting = {name for name, item in accounts.items() if item["automountServiceAccountToken"] is not False}
    inputs = {pod.owner for _, pod in WHOLE if pod.spec.get("automountServiceAccountToken")}

    # Neither KFP nor Argo asks for a token in the pods that they make: without the account's word no run starts.
    assert mounting == {"pipeline-runner"}
    assert inputs == {"CronJob/qinglan-janitor", "Deployment/qinglan-rollout", "Deployment/qinglan-shadow"}


@pytest.mark.parametrize("path", sorted(TRAINING.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_runtime_that_a_training_file_names_takes_the_format_of_its_models(path: Path) -> None:
    deploy = DeployConfig(name="a/b", store="s3://a", namespace="a", **load_yaml(path).get("deploy", {}))
    [runtime] = [
        item
        for _, item in RESOURCES
        if item["kind"] == "ServingRuntime" and item["metadata"]["name"] == deploy.runtime
    ]

    assert deploy.format in [
        supported_model_format["name"] for supported_model_format in runtime["spec"]["supportedModelFormats"]
    ]
    assert deploy.adapter == deploy.format.endswith("-adapter")


def test_no_secret_is_in_the_repository() -> None:
    stored = subprocess.run(
        ["git", "ls-files", "--", "."], cwd=MANIFESTS, capture_output=True, text=True
    ).stdout.split()

    assert not [item for _, item in RESOURCES if item["kind"] == "Secret"]
    assert not [name for name in stored if name.endswith(".env")]
    for example in MANIFESTS.rglob("*.env.example"):
        inputs = dict(
            line.split("=", 1) for line in example.read_text().splitlines() if "=" in line and line[0] != "#"
        )
        secret = {name: value for name, value in inputs.items() if "KEY" in name}
        assert secret and set(secret.values()) <= {"", "none"}, example


def test_git_ignores_a_filled_in_env_file() -> None:
    path = "manifests/overlays/single-tenant/fivedoctors/store.env"
    message = subprocess.run(["git", "check-ignore", path], cwd=MANIFESTS.parent, capture_output=True, text=True)

    assert message.stdout.strip() == path


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: f"{path.parent.parent.name}/{path.parent.name}")
def test_the_gateway_may_reach_whom_it_is_configured_for(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = yaml.safe_load((config.parent / "kustomization.yaml").read_text())
    (hosts,) = settings["configMapGenerator"][0]["literals"]
    monkeypatch.setenv(ALLOWED_VARIABLE, hosts.removeprefix("allowed-hosts="))
    inputs = GatewayConfig.parse(load_yaml(config), str(config))

    for where in (*(model.base_url for model in inputs.models().values()), inputs.rag.base_url):
        check_host(where, str(config))
    keys = (config.parent / "paid-api.env.example").read_text()
    assert all(f"{model.api_key_env}=" in keys for model in inputs.models().values())


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: f"{path.parent.parent.name}/{path.parent.name}")
def test_the_store_is_the_same_for_kserve_and_for_us(config: Path) -> None:
    settings = yaml.safe_load((config.parent / "kustomization.yaml").read_text())
    output = settings["secretGenerator"][0]["options"]["annotations"]
    scheme = {"0": "http", "1": "https"}[output["serving.kserve.io/s3-usehttps"]]

    endpoint = f"QINGLAN_S3_ENDPOINT={scheme}://{output['serving.kserve.io/s3-endpoint']}\n"
    example = (config.parent / "store.env.example").read_text()
    assert endpoint in example
    assert f"AWS_REGION={output['serving.kserve.io/s3-region']}\n" in example
    for name in {*S3_KEYS, STORE_ENDPOINT, FETCH_ENDPOINT} - {TOKEN}:
        assert f"\n{name}=" in example, "what a step's fetching needs"


def test_the_adapter_of_a_whole_training_fits_into_vllm() -> None:
    runtime = objects(MANIFESTS / "overlays/a100/rewriter-vllm.yaml")[0]
    (output,) = [arg for arg in runtime["spec"]["containers"][0]["args"] if arg.startswith("--max-lora-rank=")]

    assert SftConfig.model_fields["lora_rank"].default + PpoConfig().lora.rank <= int(output.partition("=")[2])


@pytest.mark.parametrize("runtime", ["rewriter-vllm", "rewriter-vllm-full"])
def test_knatives_features_allow_every_field_of_a_runtime_that_it_refuses_by_default(runtime: str) -> None:
    features = objects(MANIFESTS / "overlays/a100/knative/features.yaml")[0]["data"]
    spec = objects(MANIFESTS / f"overlays/a100/{runtime}.yaml")[0]["spec"]
    silent = [container for container in spec["containers"] if "ports" not in container]
    claims = [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    fields = {
        "multi-container-probing": any("readinessProbe" in container for container in silent),
        "kubernetes.podspec-persistent-volume-claim": bool(claims),
        "kubernetes.podspec-nodeselector": "nodeSelector" in spec,
        "kubernetes.podspec-tolerations": "tolerations" in spec,
        "kubernetes.podspec-affinity": "affinity" in spec,
        "kubernetes.podspec-priorityclassname": "priorityClassName" in spec,
        "kubernetes.podspec-runtimeclassname": "runtimeClassName" in spec,
        "kubernetes.podspec-securitycontext": "securityContext" in spec,
        "kubernetes.podspec-init-containers": "initContainers" in spec,
    }  # fmt: skip

    assert {name for name, used in fields.items() if used} <= {
        name for name, value in features.items() if value == "enabled"
    }


@pytest.mark.parametrize("mode", ["knative", "standard"])
def test_each_state_of_a_rollout_has_a_manifest(mode: str) -> None:
    assert {file.stem for file in ROLLOUTS if file.parent.name == mode} == {*STATES}
    assert len({item["metadata"]["name"] for file, item in ROLLOUTS.items() if file.parent.name == mode}) == 1


@pytest.mark.parametrize("file", ROLLOUTS, ids=str)
def test_every_model_is_named_by_its_digest(file: Path) -> None:
    spec = ROLLOUTS[file]["spec"]
    predictors = [spec["predictor"], *(item["predictor"] for item in spec.get("canary", ()))]

    assert all(PINNED.fullmatch(predictor["model"]["storageUri"]) for predictor in predictors)
    assert all(predictor["serviceAccountName"] == "qinglan-serving" for predictor in predictors)


def test_a_rollout_goes_from_the_old_release_to_the_new_one_and_back() -> None:
    for mode in ("knative", "standard"):
        served = {
            file.stem: item["spec"]["predictor"]["model"]["storageUri"]
            for file, item in ROLLOUTS.items()
            if file.parent.name == mode
        }
        assert served["stable"] == served["rolled-back"] != served["promoted"]


def test_the_component_with_a_companys_authority_fits_the_gateway() -> None:
    base, patch = (
        next(item for item in objects(MANIFESTS / path) if item["kind"] == "Deployment")
        for path in ("base/gateway.yaml", "company-ca/gateway.yaml")
    )
    [known], [container] = (item["spec"]["template"]["spec"]["containers"] for item in (base, patch))
    [variable], [mount] = container["env"], container["volumeMounts"]
    [volume] = patch["spec"]["template"]["spec"]["volumes"]

    assert (patch["metadata"]["name"], container["name"]) == (base["metadata"]["name"], known["name"])
    assert variable == {"name": CA_VARIABLE, "value": f"{mount['mountPath']}/ca.crt"} and mount["readOnly"]
    assert volume == {"name": mount["name"], "configMap": {"name": "company-ca"}}


def test_a_release_names_no_image_before_one_was_built() -> None:
    component = yaml.safe_load((MANIFESTS / "overlays/release/images/kustomization.yaml").read_text())

    for image in component["images"]:
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", image["digest"]) and len(set(image["digest"][7:])) > 1, image
