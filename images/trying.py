"""python -m images.trying     run one compiled component inside the built CPU image, as strictly as a cluster would.

The first step of the style line: seeded answers in, splits and a signed statement out. Its command is the one in
pipelines/compiled, its container has a read-only root, no network, no capabilities, and a user without rights.
"""

import argparse
import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from images import IMAGES
from images.building import VERSION, need_engine
from pipelines.execute.environments.step_imports import tree
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX, open_envelope, pre_authentication_encoding
from qinglan.lineage.signing.keys import PublicKey, load_signer
from qinglan.lineage.signing.trust import ensure_keys
from standins.samples.style import write_style_sample

COMPILED = IMAGES.parent / "pipelines" / "compiled" / "style.laptop.yaml"
STEP = "prepare"
BUCKET = "s3://try"
"""KFP's launcher shows a bucket to a step as the folder /s3/BUCKET."""

HARDENED = (
    "--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp:rw,size=256m,mode=1777", "--network=none",
    "--cap-drop=all", "--security-opt=no-new-privileges", "--pids-limit=256", "--memory=2g",
)  # fmt: skip

SERVERS = ("serving.gateway", "serving.rag", "serving.initialiser")

FORBIDDEN = ("import torch", "open('/opt/qinglan/x', 'w')", "open('/var/lib/qinglan/x', 'w')", "import pip")
"""Code that must fail inside the image."""


def load_graph(path: Path) -> Any:
    """A compiled pipeline's first document; the second is about the platform."""
    return next(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def command_of(graph: Mapping[str, Any], step: str, executor_input: Mapping[str, Any]) -> list[str]:
    """A compiled step's own command, with its input in the place that KFP leaves for it."""
    container = graph["deploymentSpec"]["executors"][f"exec-{step}"]["container"]
    message = json.dumps(executor_input, ensure_ascii=False)
    return [*container["command"], *(word.replace("{{$}}", message) for word in container["args"])]


def input_of(
    graph: Mapping[str, Any], step: str, inputs: Mapping[str, str], config: Mapping[str, Any]
) -> dict[str, Any]:
    """The executor input that KFP's driver would write for the step: inputs by URI, outputs under the bucket."""
    component = graph["components"][f"comp-{step}"]
    taken = component["inputDefinitions"]["artifacts"]
    artifacts = component["outputDefinitions"]["artifacts"]
    return {
        "inputs": {
            "artifacts": {name: _artifact(name, inputs[name], taken[name]) for name in taken},
            "parameterValues": {"config": dict(config)},
        },
        "outputs": {
            "artifacts": {name: _artifact(name, f"{BUCKET}/{name}", artifacts[name]) for name in artifacts},
            "outputFile": "/s3/try/executor_output.json",
        },
    }


def _artifact(name: str, uri: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    return {"artifacts": [{"name": name, "type": definition["artifactType"], "uri": uri, "metadata": {}}]}


def run_step(engine: str, image: str, folder: Path, rows: int) -> dict[str, Any]:
    """Run it; what its statement says, with the signature checked."""
    bucket, keys = folder / "s3" / "try", folder / "keys"
    write_style_sample(bucket / "given", rows, seed=0)
    ensure_keys(keys)
    for path in (bucket, *bucket.rglob("*"), keys, keys / "builder.pem"):
        path.chmod(0o777 if path.is_dir() else 0o644)  # the container's user is nobody here
    graph = load_graph(COMPILED)
    command = command_of(graph, STEP, input_of(graph, STEP, {"labelled": f"{BUCKET}/given/style.json"}, {}))
    mounts = [f"--volume={bucket.parent}:/s3", f"--volume={keys}:/etc/qinglan/keys:ro"]
    done = subprocess.run([engine, "run", "--rm", *HARDENED, *mounts, image, *command], check=False)
    if done.returncode:
        sys.exit(f"The step ended with {done.returncode} inside {image}; what it said is above.")
    (statement,) = (bucket / "lineage").glob(f"{STEP}-*{ENVELOPE_SUFFIX}")
    return verified(statement, keys)


def verified(statement: Path, keys: Path) -> dict[str, Any]:
    """The statement's content, if the key that was mounted signed it."""
    envelope, signer = open_envelope(statement.read_bytes()), load_signer("builder", keys)
    public = PublicKey(signer.id, signer.key.public_key())
    if not public.verifies(
        envelope.signatures[0].value, pre_authentication_encoding(envelope.payload, envelope.payload_type)
    ):
        sys.exit(f"{statement}: not signed by the key that was mounted.")
    content: dict[str, Any] = json.loads(envelope.payload)
    return content


def first_imports(image: str, graphs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The import of each compiled step of an image, and those in its function, by step."""
    imports = {}
    for graph in graphs:
        for step, executor in graph["deploymentSpec"]["executors"].items():
            container = executor.get("container", {})
            if container.get("image", "").startswith(image):
                text = container["command"][-1]
                name = f"{graph['pipelineInfo']['name']} {step.removeprefix('exec-')}"
                imports[name] = "\n".join([text.strip(), *_inner_imports(text)])
    return imports


def _inner_imports(text: str) -> list[str]:
    """Import lines in the body of the function that a step's one line imports."""
    [line] = ast.parse(text).body
    assert isinstance(line, ast.ImportFrom) and line.module
    [body] = [node for node in tree(line.module).body if getattr(node, "name", "") == line.names[0].name]
    return [ast.unparse(node) for node in ast.walk(body) if isinstance(node, ast.Import | ast.ImportFrom)]


def broken(engine: str, image: str, graphs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Steps whose imports, and servers whose --help, fail inside."""
    steps = first_imports("qinglan/cpu", graphs)
    if not steps:
        sys.exit(f"No step in {COMPILED.parent} names qinglan/cpu: run `make golden`.")
    print(f"imported inside: {', '.join(steps)}", flush=True)
    tried = {step: ["env", "_KFP_RUNTIME=true", "python", "-c", text] for step, text in steps.items()}
    tried |= {server: ["python", "-m", server, "--help"] for server in SERVERS}
    return [what for what, command in tried.items() if not _succeeds(engine, image, command)]


def _succeeds(engine: str, image: str, command: Sequence[str]) -> bool:
    ran = subprocess.run([engine, "run", "--rm", *HARDENED, image, *command], capture_output=True, text=True)
    if ran.returncode:
        print(ran.stderr[-400:], file=sys.stderr)
    return not ran.returncode


def refusals(engine: str, image: str) -> list[str]:
    """The forbidden actions that succeed inside the image."""
    command = [engine, "run", "--rm", *HARDENED, image, "python", "-c"]
    return [
        what
        for what in FORBIDDEN
        if not subprocess.run([*command, what], capture_output=True, check=False).returncode
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m images.trying", description="A compiled step in the CPU image.")
    parser.add_argument("--engine", default=os.environ.get("QINGLAN_ENGINE", "podman"))
    parser.add_argument("--image", default=f"qinglan/cpu:{VERSION}")
    parser.add_argument("--rows", type=int, default=600)
    arguments = parser.parse_args()
    need_engine(arguments.engine)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        statement = run_step(arguments.engine, arguments.image, Path(folder), arguments.rows)
    seconds = time.monotonic() - started
    print(json.dumps(statement["predicate"]["runDetails"], ensure_ascii=False))
    lock = hashlib.sha256((IMAGES / "cpu" / "requirements.lock").read_bytes()).hexdigest()
    if lock not in json.dumps(statement):
        sys.exit("The statement names another lock than images/cpu/requirements.lock: build the image again.")
    graphs = [load_graph(path) for path in sorted(COMPILED.parent.glob("*.yaml"))]
    if failing := broken(arguments.engine, arguments.image, graphs):
        sys.exit(f"Inside {arguments.image} these do not start: {failing}")
    if allowed := refusals(arguments.engine, arguments.image):
        sys.exit(f"Inside {arguments.image} these should fail, and do not: {allowed}")
    print(f"{STEP} ran inside {arguments.image} in {seconds:.1f} s, signed; inside fail, as they should: {FORBIDDEN}")


if __name__ == "__main__":
    main()
