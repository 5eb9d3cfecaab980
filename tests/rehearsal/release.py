"""The end of a rehearsal: release what was judged, deploy it, and serve it by its GPU runtime's own commands.

The narrow model's weights are random, so the gate holds. Then it goes on as the demo does: the release says that it
was held, and a signed override lets it be deployed. There is no cluster: the ModelRollout goes to a file, is checked
by its CRD's schema, and is turned into an InferenceService by the controller's function.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import jsonschema
import orjson
import yaml

from components.release.deploy.config import DeployConfig
from components.release.deploy.stage import deploy
from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
from qinglan.errors import QinglanError
from qinglan.lineage.signing.keys import keys_folder
from qinglan.lineage.signing.trust import TRUST_FILE, load_trust
from qinglan.processes.services import start_command
from qinglan.rewriter.engine_process import run_engine
from qinglan.terminal import quoted
from serving.rollout.cluster.first_inference_service import first_inference_service
from standins.rollout_local.ledger import FileRollouts, parse_spec

MANIFESTS = Path(__file__).parents[2] / "manifests"
RELEASE_FOLDER, BASE_FOLDER = "/mnt/models", "/mnt/base"
"""The mount paths in a runtime's pod."""

STORE = "s3://qinglan/fivedoctors"
"""A store of releases as the documents name it."""

SERVE_IMAGE = "serve"
VLLM_HERE = ("--enforce-eager", "--max-num-seqs=16")
"""Options of vLLM that differ: no compiled graphs, and fewer answers at once, for each of which it sorts the whole
vocabulary when it starts."""

ENGINE_HERE = ("--tensor-parallel-size=1", *VLLM_HERE)
"""Those of a server: one process too."""

ANSWER_SECONDS = 300.0
DEADLINE_HERE = f"--deadline-seconds={ANSWER_SECONDS:g}"
"""Two cores with twenty waiting processes took a minute for 24 tokens; a server waits ten seconds."""

READY_PATH = "/v2/health/ready"
"""The path of the transformer's readiness probe."""

START_SECONDS = 600.0
QUESTIONS = 10


class Commands(NamedTuple):
    """The words that a runtime's two containers run."""

    engine: list[str]
    transformer: list[str]


class Served(NamedTuple):
    """Rewrites of judged questions by the served release."""

    rows: int
    same: int
    """Those that read as the evaluation's."""

    learned: int
    """Those that do not read as the SFT model's: the released weights are PPO's."""

    guarded: int
    """Those that the server's guard replaced by the question."""

    def __str__(self) -> str:
        texts = f"{self.same} of {self.rows} served rewrites read as the evaluation's"
        return f"{texts}, {self.learned} not as the SFT model's; the guard replaced {self.guarded}"


def runtime_commands(runtime: str, name: str) -> Commands:
    """The commands of a GPU runtime, with the InferenceService's name as KServe fills it in."""
    file = MANIFESTS / "overlays/a100" / f"{runtime.removeprefix('qinglan-')}.yaml"
    containers = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["containers"]
    words = [[*container["command"], *container["args"]] for container in containers]
    return Commands(*([word.replace("{{.Name}}", name) for word in command] for command in words))


def commands_here(
    on_runtime: Commands, release: Path, base: Path, engine_url: str = "http://127.0.0.1:8085"
) -> Commands:
    """The same commands with this machine's folders, ports and patience; vLLM takes the last of two equal options."""

    def moved(words: list[str]) -> list[str]:
        folders = {RELEASE_FOLDER: str(release), BASE_FOLDER: str(base)}
        for mounted, folder in folders.items():
            words = [word.replace(mounted, folder) for word in words]
        return [word for word in words if not word.startswith(("--port=", "--host=", "--backend="))]

    transformer = [*moved(on_runtime.transformer), f"--backend={engine_url}", "--port=0", DEADLINE_HERE]
    return Commands([*moved(on_runtime.engine), *ENGINE_HERE], transformer)


def deploy_to_file(run: RunDir, config: DeployConfig, folder: Path) -> dict[str, Any]:
    """Deploy the run's release by the stage's own function; returns the ModelRollout that a cluster would get.

    The store's address is written as an S3 one before the CRD's schema checks it, which takes no folder.
    """
    shutil.rmtree(folder, ignore_errors=True)
    rollouts = FileRollouts(folder)
    deploy(run.files / ARTIFACT_FILES["release"], config, load_trust(keys_folder() / TRUST_FILE), rollouts)
    [rollout] = rollouts.all()
    parse_spec(rollout)
    [version] = yaml.safe_load((MANIFESTS / "platform/modelrollout.yaml").read_text())["spec"]["versions"]
    text = orjson.dumps(rollout).replace(config.store.encode(), STORE.encode())
    jsonschema.Draft4Validator(version["schema"]["openAPIV3Schema"]).validate(orjson.loads(text))
    return dict(rollout)


def serve_release(rollouts: Path, run: RunDir, base: Path, python: str, folder: Path) -> Served:
    """Fetch the release as a pod's initialiser does, start both containers' commands, and ask by V1 :predict."""
    [rollout] = FileRollouts(rollouts).all()
    service = first_inference_service(rollout)
    model, name = service["spec"]["predictor"]["model"], service["metadata"]["name"]
    fetch(model["storageUri"], folder)
    on_runtime, log = runtime_commands(model["runtime"], name), run.logs / "vllm.log"
    _, _, weights, *options = commands_here(on_runtime, folder, base).engine  # vllm serve WEIGHTS ...
    with run_engine(Path(weights), options, log, START_SECONDS, python) as engine:
        _, *transformer = commands_here(on_runtime, folder, base, engine.url).transformer
        with start_command(
            [python, *transformer], "rewriter", run.logs / "transformer.log", START_SECONDS
        ) as announced:
            url = announced()
            wait_until_ready(url + READY_PATH, START_SECONDS)
            return ask(f"{url}/v1/models/{name}:predict", run)


def wait_until_ready(url: str, seconds: float) -> None:
    """Wait as a cluster does, which sends no question to a pod before its readiness probe has passed.

    The transformer is ready once vLLM has written something. The first answer of an engine takes the longest.
    """
    deadline = time.monotonic() + seconds
    while (answer := httpx.get(url, timeout=60, trust_env=False)).status_code != 200:
        if time.monotonic() > deadline:
            raise QinglanError(f"{url}: not ready after {seconds:.0f} s: {answer.status_code} {answer.text}")
        time.sleep(1)


def fetch(uri: str, folder: Path) -> None:
    """Run the initialiser, which verifies every byte and signature before anything is laid out."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    trust = (keys_folder() / TRUST_FILE).read_text(encoding="utf-8")
    command = [sys.executable, "-m", "serving.initialiser", uri, str(folder)]
    done = subprocess.run(command, env={**os.environ, "QINGLAN_TRUST": trust}, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise QinglanError("The initialiser refused the release:", *quoted(done.stderr.decode()))


def ask(url: str, run: RunDir) -> Served:
    """Ask the served model questions of the locked test; an answer that is no rewrite is an error."""
    rows = [orjson.loads(line) for line in run.shown("locked_test").read_bytes().splitlines()][:QUESTIONS]
    judged = {row["id"]: row for row in map(orjson.loads, run.shown("predictions").read_bytes().splitlines())}
    same = learned = guarded = 0
    for row in rows:
        instance = {
            "query": row["question"], "tenant_id": row["tenant_id"], "user_profile": row["user_profile"],
            "history_summary": row["history_summary"],
        }  # fmt: skip
        answer = httpx.post(url, json={"instances": [instance]}, timeout=2 * ANSWER_SECONDS, trust_env=False)
        if answer.status_code != 200:
            raise QinglanError(f"{url}: {answer.status_code} {answer.text}")
        [prediction] = answer.json()["predictions"]
        guarded += "fallback" in prediction
        rewrites = {name: system["rewrite"] for name, system in judged[row["id"]]["systems"].items()}
        same += prediction["rewritten_query"] == rewrites["rl"]
        learned += prediction["rewritten_query"] != rewrites["sft"]
    return Served(len(rows), same, learned, guarded)
