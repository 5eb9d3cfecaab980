"""Roll out a run's release on this machine, with the production controller, real servers on loopback and simulated
users.

    verdict -> register -> deploy -> rollout

The stable version is the run's SFT model. No gate has judged that model, so a signed override lets it serve; every
audit of the model shows the override.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import orjson

from commands.options import trust_policy
from components.release.deploy.config import DeployConfig
from components.release.deploy.stage import deploy
from components.release.register.baseline import UNJUDGED, release_baseline
from components.release.register.stage import Inputs
from pipelines.checks.preflight import knowledge_bases
from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
from pipelines.lines.rewriter import LoopbackConfig, RunConfig
from qinglan.errors import ConfigError, OutageError, error_class_for
from qinglan.lineage.auditing.deploy_gate import break_glass
from qinglan.lineage.release.release_address import ReleaseAddress
from qinglan.lineage.release.release_notes import format_rollout as rollout_line
from qinglan.lineage.release.release_notes import read_rollout_notes
from qinglan.processes.services import READY_SECONDS, end_with_parent, run_service
from qinglan.rag.contract import RAG_PATH
from qinglan.store import Store, open_store
from qinglan.terminal import Verbatim, say
from serving.rollout.state import State
from standins.rollout_local.ledger import FileRollouts, parse_state
from standins.rollout_local.service import FileTarget, create_service
from standins.users import PLAIN, RequestBody, Traffic, simulated_users

ROLLOUT_LOG = "rollout.log"
"""Name of the log in the rollout's folder, with the controller's decisions and their figures."""

FOLDER, SERVER = "loopback", "standins.rollout_local.serve"
BY, REASON = "qinglan demo", "the first model of this demo: nothing was compared with it"
SAMPLE_SEED, FRESH_SEED = 0, 1_000_003
"""Seeds of the sample's knowledge base, and of the new conversations that the simulated users have."""


def roll_out(config: RunConfig, root: Path) -> State:
    """Deploy the run's release and follow its rollout to the end; every step is printed."""
    run, chosen = RunDir(root), config.loopback
    if chosen is None:
        raise ConfigError(
            f"{run.config}: does not say how to roll out here. Give it `loopback:`, as the demo has it."
        )
    release = run.files / ARTIFACT_FILES["release"]
    if not release.is_dir():
        raise ConfigError(f"{release}: no release there. `make demo` makes one.")
    folder = root / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    create_service(folder, _first_release(config, run, folder), BY)
    _deploy(config, chosen, release, folder)
    with ExitStack() as stack:
        traffic, rag = _start_servers(config, chosen, run, folder, stack)
        state = _run_controller(folder, rag)
        versions = traffic.by_version()
        answered = ", ".join(f"{count:,} by {version}" for version, count in versions.items() if version != PLAIN)
        say(
            f"Users asked {traffic.questions:,} questions and got {traffic.errors:,} errors. Rewritten: {answered}; "
            f"{versions.get(PLAIN, 0):,} searched as they were asked."
        )
    _show_signed(config, folder)
    return state


def release_store(config: RunConfig) -> Store:
    return open_store(config.register_.store).prepare()


def _first_release(config: RunConfig, run: RunDir, folder: Path) -> str:
    """Release the SFT model and sign the override that lets it serve without a verdict; returns its URI."""
    gate = run.step_record("gate") or {}
    inputs = Inputs(
        run.artifact("evaluation"), run.artifact("sft_model"), run.artifact("report"), Path(gate["lineage"])
    )
    baseline_folder, store = folder / "baseline", release_store(config)
    baseline = release_baseline(inputs, baseline_folder, config.register_, "sft")
    store.push(baseline_folder, baseline.release)
    policy = trust_policy()
    break_glass(str(baseline_folder), store.address, (), policy, REASON, BY)
    say(f"✓ stable: the SFT model, release {baseline.release[:12]}, by a signed override. {UNJUDGED}")
    return ReleaseAddress(store.address, baseline.release).uri


def _deploy(config: RunConfig, chosen: LoopbackConfig, release: Path, folder: Path) -> None:
    settings = DeployConfig(
        name=config.register_.name, store=release_store(config).address, namespace=FOLDER, rollout=chosen.rollout
    )
    done = deploy(release, settings, trust_policy(), FileRollouts(folder))
    say(f"✓ deploy: {done.message}")


def _start_servers(
    config: RunConfig, chosen: LoopbackConfig, run: RunDir, folder: Path, stack: ExitStack
) -> tuple[Traffic, str]:
    """Start the model router, the RAG service, which calls the router, and simulated users, who call the RAG service.

    Returns the users' traffic and the RAG service's URL.
    """
    router = stack.enter_context(run_service(SERVER, [str(folder), "--port", "0"], folder / "logs" / "router.log"))
    arguments = ["--index-root", str(run.index), "--rewriter", router, "--port", "0"]
    for tenant, path in knowledge_bases(config).items():
        arguments += ["--kb", f"{tenant}={path}"]
        if (reranker := run.index / f"{tenant}-reranker.json").is_file():
            arguments += ["--reranker", f"{tenant}={reranker}"]
    _wait_for_stable(folder)
    rag = stack.enter_context(run_service("serving.rag", arguments, folder / "logs" / "rag.log"))
    traffic = stack.enter_context(
        simulated_users(f"{rag}{RAG_PATH}", _questions(config, run), chosen.requests_a_second)
    )
    return traffic, rag


def _wait_for_stable(folder: Path) -> None:
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        if FileTarget(folder).read().traffic:
            return
        time.sleep(0.2)
    raise OutageError(f"{folder / 'logs'}: the first model was not ready after two minutes. Its log there says why.")


def _questions(config: RunConfig, run: RunDir) -> Iterator[RequestBody]:
    """Yield requests with newly sampled questions that are not in the locked test."""
    from standins.samples.conversations import fresh_turns

    with (run.files / ARTIFACT_FILES["locked_test"]).open("rb") as file:
        rows = [orjson.loads(line) for line in file]
    locked = {(row["question"], row["user_profile"], row["history_summary"]) for row in rows}
    for turn in fresh_turns(config.tenant_id, SAMPLE_SEED, FRESH_SEED):
        if (turn.question, turn.profile, turn.history) not in locked:
            yield {
                "query": turn.question, "user_profile": turn.profile, "history_summary": turn.history,
                "tenant_id": config.tenant_id, "kb_name": config.retrieval.kb_name,
                "score_threshold": config.validate_.quality_threshold,
            }  # fmt: skip


@contextmanager
def _controller(folder: Path, rag: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "standins.rollout_local", str(folder), "--metrics", rag],
        stdout=subprocess.PIPE, text=True, preexec_fn=end_with_parent,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            # Leaving `with process` waits for its end, and the controller ends only at a signal.
            process.terminate()


def _run_controller(folder: Path, rag: str) -> State:
    with _controller(folder, rag) as process:
        assert process.stdout is not None
        with (folder / ROLLOUT_LOG).open("w", encoding="utf-8") as log:
            for line in process.stdout:
                log.write(line)
                if not line.startswith(" "):  # indented lines are a decision's figures
                    say(Verbatim(f"  {line}".rstrip("\n")))
        code = process.wait()
    if code:
        raise error_class_for(code)(
            f"{folder}: the rollout's controller ended with {code}. {folder / ROLLOUT_LOG} holds what it wrote."
        )
    [rollout] = FileRollouts(folder).all()
    return parse_state(rollout)


def _show_signed(config: RunConfig, folder: Path) -> None:
    """Print the outcome that the controller signed and stored beside the release."""
    [rollout] = FileRollouts(folder).all()
    release, policy = rollout["spec"]["release"], trust_policy()
    histories = read_rollout_notes(
        release_store(config).notes(release["digest"]), policy, release["digest"], config.tenant_id
    )
    for history in histories:
        say(f"Beside the release: {rollout_line(history)}")
