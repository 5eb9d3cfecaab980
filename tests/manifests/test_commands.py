"""Programs in the manifests exist and take the options that they get."""

import importlib
import re
import sys
from typing import Any

import httpx
import pytest

from qinglan.config import load_yaml
from qinglan.rewriter.engine import ENGINE_ENVIRONMENT, engine_options
from serving.rag.config import RewriterConfig
from tests.manifests.manifest_objects import MANIFESTS, Object, objects, pods, resources

STARTED = [
    (f"{file}", item)
    for file, owner in resources()
    for pod in pods(owner)
    for item in pod.spec.get("containers", ())
    if item.get("args") and (item.get("command") or item["name"] == "rag")
]
INPUTS = {
    "$(TENANT)": "demo", "$(NAMESPACE)": "qinglan-demo", "{{.Name}}": "rewriter",
    "$(QINGLAN_PAYLOADS)": "s3://payloads/demo",
}  # fmt: skip
SERVERS = [(file, item) for file, item in STARTED if (item.get("command") or ["python"])[0] == "python"]


def expanded(container: Object) -> list[str]:
    """The arguments as the kubelet and KServe would fill them in."""
    return [filled(arg) for arg in container["args"]]


def filled(argument: str) -> str:
    for name, value in INPUTS.items():
        argument = argument.replace(name, value)
    return argument


@pytest.mark.parametrize("file, container", SERVERS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_server_reads_its_command_line(file: str, container: Object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way through argparse and our settings, up to the opening of what only a cluster has."""
    name = container["command"][2] if "command" in container else "serving.rag"
    main = importlib.import_module(f"{name}.__main__")
    observed: list[Any] = []

    def opened(*values: Any, **named: Any) -> None:
        observed.append((values, named))

    monkeypatch.setattr(main, "StandInBackend", lambda *files: None, raising=False)  # files of a volume
    for function in ("serve", "serve_knowledge_bases"):
        monkeypatch.setattr(main, function, opened, raising=False)
    if name == "serving.gateway":
        config = load_yaml(MANIFESTS / "overlays/single-tenant/fivedoctors/gateway.yaml")
        monkeypatch.setattr(main, "load_yaml", lambda path: config)
    monkeypatch.setattr(sys, "argv", [name, *expanded(container)])
    main.main()

    assert len(observed) == 1
    assert "0.0.0.0" in repr(observed), "a pod that listens on loopback alone answers nobody"
    (port,) = [arg.partition("=")[2] for arg in container["args"] if arg.startswith("--port=")]
    assert port in repr(observed)
    if "ports" in container:
        assert [item["containerPort"] for item in container["ports"]] == [int(port)]


def test_all_of_our_servers_but_the_console_are_started() -> None:
    names = {item["command"][2] for _, item in SERVERS if "command" in item}

    assert names == {
        "serving.gateway", "serving.rag", "serving.rewriter", "serving.rollout", "serving.rollout.shadow",
        "serving.style", "standins.teacher",
    }  # fmt: skip


@pytest.mark.parametrize("option", ["--rewriter", "--style"])
def test_models_are_asked_by_a_name_that_knatives_gateway_knows(option: str) -> None:
    """A single label it answers with 404; name and namespace are the shortest."""
    url = told_to_rag(option)

    assert httpx.URL(url).host.split(".") == [f"{option.removeprefix('--')}-predictor", "qinglan-demo"]
    if option == "--rewriter":
        assert (rewriter := RewriterConfig.read(url)) and rewriter.kind == "kserve"


@pytest.mark.parametrize("file, container", STARTED, ids=lambda value: value if isinstance(value, str) else "")
def test_variables_in_a_command_line_are_in_the_containers_environment(file: str, container: Object) -> None:
    """The kubelet passes on as it is what it cannot fill in."""
    open_names = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))

    assert open_names <= {item["name"] for item in container.get("env", ())} or "envFrom" in container


def told_to_rag(option: str) -> str:
    container = next(item for pod in pods(objects(MANIFESTS / "base/rag.yaml")[0]) for item in pod.spec["containers"])
    (output,) = [arg.partition("=")[2] for arg in expanded(container) if arg.startswith(f"{option}=")]
    return str(output)


@pytest.mark.parametrize(
    ("runtime", "weights", "adapter"),
    [("rewriter-vllm", "/mnt/base", "/mnt/models/model/adapter"), ("rewriter-vllm-full", "/mnt/models/model", "")],
)
def test_vllm_is_started_as_the_evaluation_starts_it(runtime: str, weights: str, adapter: str) -> None:
    """By the options of qinglan/rewriter/engine.py, on two GPUs; the transformer beside it asks by the same name."""
    [manifest] = objects(MANIFESTS / f"overlays/a100/{runtime}.yaml")
    vllm, transformer = manifest["spec"]["containers"]
    options = [dict(arg.split("=", 1) for arg in item["args"] if "=" in arg) for item in (vllm, transformer)]

    assert vllm["command"] == ["vllm", "serve", weights]
    assert sorted(vllm["args"]) == sorted(["--port=8085", *engine_options("{{.Name}}", adapter, gpus=2)])
    assert ENGINE_ENVIRONMENT.items() <= {variable["name"]: variable["value"] for variable in vllm["env"]}.items()
    assert vllm["resources"]["limits"]["nvidia.com/gpu"] == options[0]["--tensor-parallel-size"] == "2"
    assert options[1]["--backend"] == f"http://127.0.0.1:{options[0]['--port']}"
    assert options[1]["--name"] == "{{.Name}}"
    assert [item["name"] for item in (vllm, transformer) if "ports" in item] == ["transformer-container"]


def test_probes_ask_for_paths_that_the_servers_have() -> None:
    """Probe the whole addresses of our applications; vLLM's own is /health."""
    requested = {
        (container["command"][2] if container["command"][0] == "python" else "vllm", probe["httpGet"]["path"])
        for _, container in STARTED
        if "command" in container
        for kind in ("startupProbe", "readinessProbe", "livenessProbe")
        for probe in [container[kind]]
    }
    kserves = {("/v2/health/ready"), ("/v2/health/live")}
    known = {
        "serving.gateway": {"/healthz", "/readyz"}, "serving.rag": {"/healthz", "/readyz"},
        "standins.teacher": {"/healthz", "/readyz"}, "serving.rewriter": kserves, "serving.style": kserves,
        "serving.rollout": {"/healthz"}, "serving.rollout.shadow": {"/healthz"}, "vllm": {"/health"},
    }  # fmt: skip

    assert all(path in known[name] for name, path in requested)
