"""The pods of the compiled graphs ask for what each profile says: keys, quotas, GPUs, volumes, waits."""

from pathlib import Path

import pytest

from pipelines.graph.compiler import compile_targets, rewriter_target, style_target
from qinglan.http.outages import OUTAGE_VARIABLE
from tests.pipelines.graph.compiled_graphs import FETCHING, GOLDENS, ON_GPUS, Compiled, compiled, env, parsed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", GOLDENS)
def test_every_step_gets_the_key_it_signs_with_and_knows_its_run_and_image(name: str) -> None:
    result = compiled(name)

    for step, container in result.steps.items():
        pod = result.pod(step)
        [secret] = pod["secretAsVolume"]
        assert secret["mountPath"] == "/etc/qinglan/keys"
        assert secret["secretName"] == ("qinglan-release-keys" if "register" in step else "qinglan-builder-key")
        assert {item["name"] for item in pod["fieldPathAsEnv"]} == {"QINGLAN_RUN", "QINGLAN_IMAGE"}
        assert pod["podMetadata"]["annotations"] == {"qinglan/image": container["image"]}


def store_keys(compiled: Compiled, step: str) -> dict[str, str]:
    """By variable, the key of the store's Secret that a step is given."""
    secrets = [item for item in compiled.pod(step).get("secretAsEnv", ()) if item["secretName"] == "qinglan-store"]
    assert all(item["optional"] for item in secrets)
    return {key["envVar"]: key["secretKey"] for item in secrets for key in item["keyToEnv"]}


@pytest.mark.parametrize("name", GOLDENS)
def test_steps_that_take_an_imported_input_and_no_others_can_fetch_it(name: str) -> None:
    result = compiled(name)

    expected = {"generate", "validate", "augment", "base"} if name.startswith("rewriter") else {"prepare"}
    for step in result.steps:
        if step in expected:
            assert store_keys(result, step) == FETCHING
        else:
            assert "AWS_ENDPOINT_URL_S3" not in store_keys(result, step)
            assert bool(store_keys(result, step)) is step.startswith("register")


@pytest.mark.parametrize("name", GOLDENS)
def test_every_pod_asks_for_what_a_quota_counts_is_not_root_and_ends(name: str) -> None:
    result = compiled(name)

    for step, container in result.steps.items():
        resources, pod = container["resources"], result.pod(step)
        assert resources["resourceCpuRequest"] == resources["resourceCpuLimit"]
        assert resources["resourceMemoryRequest"] == resources["resourceMemoryLimit"]
        assert resources["resourceMemoryLimit"].endswith("Gi")
        assert pod["securityContext"] == {"runAsUser": "65532", "runAsGroup": "65532", "runAsNonRoot": True}
        assert int(pod["activeDeadlineSeconds"]) >= 3600
        assert "pip install" not in str(container), "its image holds all that it needs"


@pytest.mark.parametrize("name", GOLDENS)
def test_every_pod_says_what_it_is_part_of_which_step_and_whose(name: str) -> None:
    result = compiled(name)
    tenant = {"qinglan.dev/tenant": "fivedoctors"} if name.startswith("rewriter") else {}

    for step in result.steps:
        stage = step.removeprefix("text-").removesuffix("-style").replace("-", "_")
        labels = {"app.kubernetes.io/part-of": "qinglan", "qinglan.dev/step": stage, **tenant}
        assert result.pod(step)["podMetadata"]["labels"] == labels


@pytest.mark.parametrize("name", GOLDENS)
def test_steps_that_ask_the_gateway_wait_for_it_themselves_since_kfp_tries_no_failed_step_again(name: str) -> None:
    result = compiled(name)
    waits = {"name": OUTAGE_VARIABLE, "value": "900"}
    callers = {"gateway-state", "generate", "validate", "label", "augment", "sft", "ppo", "evaluate"}

    expected = callers & result.steps.keys() if name.startswith("rewriter") else set()
    assert {step for step, container in result.steps.items() if waits in env(container)} == expected
    assert not [task for task in result.tasks.values() if "retryPolicy" in task]


@pytest.mark.parametrize("name", GOLDENS)
def test_gpus_are_asked_for_with_type_and_count_memory_time_and_tolerance(name: str) -> None:
    result = compiled(name)
    resources = {step: step_item["resources"].get("accelerator") for step, step_item in result.steps.items()}

    assert {step: int(item["resourceCount"]) for step, item in resources.items() if item} == ON_GPUS.get(name, {})
    for step, item in resources.items():
        pod = result.pod(step)
        if not item:
            assert not {"nodeSelector", "tolerations", "emptyDirMounts"} & set(pod)
            continue
        assert item["resourceType"] == "nvidia.com/gpu"
        assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        card = "NVIDIA-L4" if name.endswith("-24") else "NVIDIA-A100-SXM4-80GB"
        assert pod["nodeSelector"] == {"labels": {"nvidia.com/gpu.product": card}}
        if not hands_on(result, step):
            assert pod["emptyDirMounts"] == [{"mountPath": "/dev/shm", "medium": "Memory", "volumeName": "shm"}]


def hands_on(compiled: Compiled, step: str) -> bool:
    """Tell if its GPUs go to a job that it launches."""
    passed = compiled.spec["components"][f"comp-{step}"].get("taskConfigPassthroughs", ())
    return any(field["field"] == "RESOURCES" and not field.get("applyToTask") for field in passed)


@pytest.mark.parametrize("name", GOLDENS)
def test_only_gpu_profiles_want_volumes_and_only_what_goes_on_from_them_mounts_one(name: str) -> None:
    result = compiled(name)
    mounted = {step: {item["constant"] for item in result.pod(step).get("pvcMount", ())} for step in result.steps}
    cache = {"name": "QINGLAN_CACHE", "value": "/var/lib/qinglan/cache"}
    caches = {step for step, container in result.steps.items() if cache in env(container)}

    if name not in ON_GPUS:
        assert {claim for claims in mounted.values() for claim in claims} <= {"qinglan-base-weights"} and not caches
        return
    public = {"base", "sft", "ppo"} if name.startswith("rewriter") else {"text-base", "style"}  # ppo: its critic
    resuming = {"base", "sft", "ppo"} if name.startswith("rewriter") else {"style", "distil"}
    assert {step for step, claims in mounted.items() if "qinglan-scratch" in claims} == resuming == caches
    assert {step for step, claims in mounted.items() if "qinglan-base-weights" in claims} == public


def test_a_step_that_calls_an_address_itself_gets_the_operators_allowlist(tmp_path: Path) -> None:
    settings = {"evaluate": {"rewriter_urls": {"sft": "http://rewriter.example"}}}

    [graph] = compile_targets([rewriter_target("fivedoctors", "gpt", "a100x4", settings)], tmp_path / "out", {})
    result = parsed(graph.read_text(encoding="utf-8"))

    maps = {step: result.pod(step).get("configMapAsEnv", []) for step in result.steps}
    hosts = [(step, item) for step in maps for item in maps[step] if item["configMapName"] == "qinglan-allowed-hosts"]
    [(step, item)] = hosts
    assert (step, item["optional"]) == ("evaluate", True)
    assert item["keyToEnv"] == [{"configMapKey": "hosts", "envVar": "QINGLAN_ALLOWED_HOSTS"}]


@pytest.mark.parametrize(("store", "inputs"), [("s3://qinglan/fivedoctors", True), ("", False)])
def test_the_steps_that_judge_a_model_can_count_it_in_the_store_of_releases(
    store: str, inputs: bool, tmp_path: Path
) -> None:
    overrides = {"register": {"store": store}}
    targets = [rewriter_target("fivedoctors", "gpt", None, overrides), style_target("a100", overrides)]

    for target, graph in zip(targets, compile_targets(targets, tmp_path, {}), strict=True):
        result = parsed(graph.read_text(encoding="utf-8"))
        judging = {step for step in result.steps if step.startswith("evaluate")}
        stores = {
            step: item["value"]
            for step, container in result.steps.items()
            for item in env(container)
            if item["name"] == "QINGLAN_STORE"
        }
        assert stores == (dict.fromkeys(judging, store) if inputs else {}), target.name
        assert all(("QINGLAN_S3_ENDPOINT" in store_keys(result, step)) is inputs for step in judging)
