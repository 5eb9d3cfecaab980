"""python -m images.trying     run one compiled component inside the built CPU image, as strictly as a cluster would.

The first step of the style line: seeded answers in, splits and a signed statement out. Its command is the one in
pipelines/compiled, its container has a read-only root, no network, no capabilities, and a user without rights.
tests/images/test_imports.py looks for the imports of all other steps in the locks.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from images import IMAGES
from images.building import VERSION, need_engine
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX, open_envelope, verify_signature
from qinglan.lineage.signing.keys import PublicKey, load_signer
from qinglan.lineage.signing.trust import ensure_keys
from standins.samples.style import write_style_sample

COMPILED = IMAGES.parent / "pipelines" / "compiled" / "style.laptop.yaml"
STEP = "prepare"
BUCKET = "s3://try"
"""Bucket of the step's artifacts, which KFP's launcher shows to a step as the folder /s3/BUCKET."""

HARDENED = (
    "--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp:rw,size=256m,mode=1777", "--network=none",
    "--cap-drop=all", "--security-opt=no-new-privileges", "--pids-limit=256", "--memory=2g",
)  # fmt: skip

FORBIDDEN = ("import torch", "open('/opt/qinglan/x', 'w')", "open('/var/lib/qinglan/x', 'w')", "import pip")
"""Code that must fail inside the image."""


def step_command(graph: Mapping[str, Any], step: str, inputs: Mapping[str, str]) -> list[str]:
    """A compiled step's own command on these inputs, with the executor input that KFP's driver would write."""
    component = graph["components"][f"comp-{step}"]
    outputs = component["outputDefinitions"]["artifacts"]

    def artifact(name: str, uri: str, definition: Mapping[str, Any]) -> dict[str, Any]:
        return {"artifacts": [{"name": name, "type": definition["artifactType"], "uri": uri, "metadata": {}}]}

    taken = component["inputDefinitions"]["artifacts"].items()
    executor_input = {
        "inputs": {
            "artifacts": {name: artifact(name, inputs[name], definition) for name, definition in taken},
            "parameterValues": {"config": {}},
        },
        "outputs": {
            "artifacts": {name: artifact(name, f"{BUCKET}/{name}", outputs[name]) for name in outputs},
            "outputFile": "/s3/try/executor_output.json",
        },
    }
    container = graph["deploymentSpec"]["executors"][f"exec-{step}"]["container"]
    message = json.dumps(executor_input, ensure_ascii=False)
    return [*container["command"], *(word.replace("{{$}}", message) for word in container["args"])]


def run_step(engine: str, image: str, folder: Path) -> str:
    """Run the step inside the image; returns its signed statement."""
    bucket, keys = folder / "s3" / "try", folder / "keys"
    write_style_sample(bucket / "given", 600, seed=0)
    ensure_keys(keys)
    folder.chmod(0o755)
    for path in (bucket, *bucket.rglob("*"), keys, keys / "builder.pem"):
        path.chmod(0o777 if path.is_dir() else 0o644)  # the container's user is nobody here
    graph = next(yaml.safe_load_all(COMPILED.read_text(encoding="utf-8")))
    command = step_command(graph, STEP, {"labelled": f"{BUCKET}/given/style.json"})
    mounts = [f"--volume={bucket.parent}:/s3", f"--volume={keys}:/etc/qinglan/keys:ro"]
    if code := subprocess.run([engine, "run", "--rm", *HARDENED, *mounts, image, *command], check=False).returncode:
        sys.exit(f"The step ended with {code} inside {image}; its output is above.")
    (statement,) = (bucket / "lineage").glob(f"{STEP}-*{ENVELOPE_SUFFIX}")
    envelope, signer = open_envelope(statement.read_bytes()), load_signer("builder", keys)
    if not verify_signature(envelope, envelope.signatures[0], PublicKey(signer.id, signer.key.public_key())):
        sys.exit(f"{statement.name}: not signed by the key that was mounted.")
    return envelope.payload.decode()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m images.trying", description="A compiled step in the CPU image.")
    parser.add_argument("--engine", default=os.environ.get("QINGLAN_ENGINE", "podman"))
    parser.add_argument("--image", default=f"qinglan/cpu:{VERSION}")
    arguments = parser.parse_args()
    need_engine(arguments.engine)
    with tempfile.TemporaryDirectory() as folder:
        statement = run_step(arguments.engine, arguments.image, Path(folder))
    lock = hashlib.sha256((IMAGES / "cpu" / "requirements.lock").read_bytes()).hexdigest()
    if lock not in statement:
        sys.exit("The statement names another lock than images/cpu/requirements.lock: build the image again.")
    inside = [arguments.engine, "run", "--rm", *HARDENED, arguments.image, "python", "-c"]
    for code in FORBIDDEN:
        if not subprocess.run([*inside, code], capture_output=True, check=False).returncode:
            sys.exit(f"Inside {arguments.image} this should fail, and does not: {code}")
    print(f"{STEP} ran inside {arguments.image}, signed; inside fail, as they should: {FORBIDDEN}")


if __name__ == "__main__":
    main()
