"""Execute a rewriter or style run: run its graph in a child process, show it live, link outputs, explain failures."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

import orjson

from pipelines.execute.interrupts import INTERRUPTED
from pipelines.execute.local_execution import LocalJob, write_job
from pipelines.execute.rundir import ARTIFACT_FILES, RunDir, write_json
from pipelines.execute.step_display import StepDisplay
from pipelines.lines.config import dump_config
from pipelines.lines.line import LINEAGE, Line, LineConfig, stages_of
from qinglan.config import load_yaml
from qinglan.errors import ConfigError, GateHeldError, QinglanError
from qinglan.files.digests import digest
from qinglan.files.files import open_private
from qinglan.files.input_paths import path_fault
from qinglan.files.plain_files import open_lock, open_plain, writing
from qinglan.jobs.gpus import need_gpus
from qinglan.jobs.processes import wait_for_process_group
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX
from qinglan.lineage.signing.keys import keys_folder, load_signer
from qinglan.lineage.signing.trust import ensure_keys, has_keys
from qinglan.lineage.steps.record import code_version
from qinglan.live.trackers import check_installed, check_trackers
from qinglan.processes.process_guard import process_guard
from qinglan.store import STORE_VARIABLE
from qinglan.terminal import quoted, say, visible

Config = TypeVar("Config", bound=LineConfig)
KILLED: dict[str, Any] = {"message": "the step was killed", "explained": True, "exit_code": 1}
AGAIN = "Run the same command again"
STEP_ENDS_SECONDS = 60.0
"""Seconds that a stopped step gets to end its training before it is killed."""

RUNNING = "running"
"""Status of a run that has not ended, or was killed."""

SHOWN_FILES = 3
"""Highest number of files of a foreign folder that an error names."""

SHEET = ".xlsx"
"""Ending of the files that people read, and that no stage takes as input."""

STOPPED: dict[str, Any] = {"message": "the run was stopped", "explained": True, "exit_code": INTERRUPTED}


class StepFailed(QinglanError):
    """A step ended with an error. The step's record names the error; the exit code is the error's own."""

    def __init__(self, *lines: str, exit_code: int) -> None:
        super().__init__(*lines)
        self.exit_code = exit_code


def select_stages(line: Line, only: str, until: str) -> tuple[str, ...]:
    """Return the stage `only`, or all stages up to `until`; without both, all stages of the line."""
    if only and until:
        raise ConfigError("--only runs one stage, --until all up to one. Give one of the two.")
    stages = tuple(line.stages) if only else line.until(line.last)
    last = only or until or line.last
    if last not in stages:
        by_name = f" {last} runs by --only alone." if last in line.stages else ""
        raise ConfigError(f"No stage {last!r}. There are: {', '.join(stages)}.{by_name}")
    return (only,) if only else line.until(last)


def check_stage_inputs(line: Line, run: RunDir, only: str) -> bool:
    """Tell if a stage by --only takes artifacts of earlier stages; ConfigError if one of them is missing."""
    taken = [name for name in line.stages[only].inputs if name not in line.inputs] if only else []
    missing = [name for name in taken if not run.shown(name).exists()]
    if missing:
        last = [name for name, stage in line.stages.items() if stage.outputs.keys() & {*missing}][-1]
        outputs = {name: line.stages[name].outputs for name in line.until(last)}
        absent = [name for name, names in outputs.items() if not all(run.shown(item).exists() for item in names)]
        raise ConfigError(
            f"{run.root}: lacks {', '.join(ARTIFACT_FILES[name] for name in missing)}, which {only} takes: "
            f"{', '.join(absent)} must run first.",
            f"The same command with --until {last} instead of --only {only} runs everything up to there; "
            f"{line.rerun_note}",
        )
    return bool(taken)


def check_machine(line: Line, config: LineConfig, stages: Sequence[str]) -> None:
    """Refuse trainings whose GPUs or packages this machine lacks, before data is paid for in vain."""
    for name in stages:
        stage = line.stages[name]
        if not stage.resumes:
            continue  # no training
        if (gpus := stage.gpus(config)) and not (name == "ppo" and "RAY_ADDRESS" in os.environ):
            need_gpus(name, gpus)
        settings = config.stages().get(name, {})
        if settings.get("device") == "cpu" and settings.get("deepspeed") and find_spec("deepspeed") is None:
            raise ConfigError(
                f"{name}.deepspeed: {settings['deepspeed']} on a CPU needs DeepSpeed, which this environment lacks. "
                "Leave it out: one process has nothing to share out."
            )


def check_tracking(line: Line, config: LineConfig, stages: Sequence[str], gateway_has_mlflow: bool = False) -> None:
    """Check that the trackers of the trainings among these stages have their keys, addresses and packages here."""
    trainings = [line.stages[name] for name in stages if "trackers" in line.stages[name].config.model_fields]
    if trainings:
        check_trackers(config.trackers, os.environ, gateway_has_mlflow)
    if trainings and not any(stage.gpus(config) for stage in trainings):
        check_installed(config.trackers)  # on GPUs, the images' environments have the trackers' packages


def check_deploys(config: LineConfig, stages: Sequence[str]) -> None:
    declared = stages_of(type(config))
    for name in stages:
        if declared[name].deploys and getattr(config, declared[name].attribute) is None:
            raise ConfigError(
                f"{name}: the profile does not say where to. Give it `{name}: {{namespace: ..., store: ...}}`."
            )


def refuse_foreign_folder(run: RunDir) -> None:
    """Raise a ConfigError for a folder that holds files but no run."""
    if run.has_begun() or not run.root.exists():
        return
    if not run.root.is_dir():
        raise ConfigError(f"{run.root}: a file, and a run needs a folder. Give --out a new folder.")
    names = sorted(path.name for path in run.root.iterdir())
    # A desktop, an editor or a file system makes files such as .DS_Store and lost+found by itself.
    if files := [visible(name) for name in names if not name.startswith(".") and name != "lost+found"]:
        shown = [*files[:SHOWN_FILES], *(["..."] if len(files) > SHOWN_FILES else [])]
        raise ConfigError(
            f"{run.root}: holds files that are no run's ({', '.join(shown)}), and nothing was changed. Give --out a "
            "new folder, or an earlier run's to go on there."
        )


def recorded_inputs(run: RunDir, inputs: Mapping[str, Path | None]) -> dict[str, Path]:
    """Return the files that the folder's run began with, if `inputs` are copies of them. Other files are refused,
    because their results would overwrite the first ones.

    A file at the same path counts as the same, even if it was corrected. The run continues with the first file as
    long as it exists, because a copy may be temporary.
    """
    before = load_yaml(run.config) if run.config.is_file() else {}
    recorded = {}
    for name, path in inputs.items():
        earlier = before.get(name)
        if not earlier or path is None or path_fault(path, "", folder=name != "questions"):
            continue  # a wrong path is named with the other problems
        if Path(earlier).resolve() == path.resolve():
            continue
        earlier_digest = digest(Path(earlier)) if Path(earlier).exists() else _recorded_digest(run, name)
        option = f"--{name.replace('_', '-')}"
        if not earlier_digest:
            raise ConfigError(
                f"{run.root}: its run began with {option} {earlier}, which is not there any more, and no step has "
                f"noted its digest to compare {path} with. Give --out another folder; or, to go on here with what "
                f"was paid for so far, remove {run.config} first."
            )
        if earlier_digest != digest(path):
            raise ConfigError(
                f"{run.root}: its run began with {option} {earlier}, and {path} holds other bytes. Give --out "
                f"another folder; or, to begin again here with what was paid for so far, remove {run.config} first."
            )
        if Path(earlier).exists():
            recorded[name] = Path(earlier)
    return recorded


def _recorded_digest(run: RunDir, name: str) -> str:
    """Return the digest of a file that the run began with, from the record of a step that read it; else empty."""
    records = (run.step_record(path.stem) for path in sorted(run.records.glob("*.json")))
    digests = ((record or {}).get("inputs", {}).get(name, {}).get("sha256", "") for record in records)
    return next(filter(None, digests), "")


@contextmanager
def run_lock(run: RunDir) -> Iterator[None]:
    """Lock the run's folder, because two runs in one folder would overwrite each other's records."""
    refuse_foreign_folder(run)
    run.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_lock(run.lock) as lock:
        # flock is released by the kernel when the process ends, however it ends: no stale lock file blocks a folder.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"{run.root}: a run is under way there. Wait for it, or give --out another.") from error
        with writing(run.root):
            yield


def state_in_words(run: RunDir) -> str:
    """Describe the state of the folder's last run; empty if there is no run.json."""
    if not run.record.is_file():
        return ""
    status = orjson.loads(run.record.read_bytes()).get("status")
    if status != RUNNING:
        return f"Its last run ended as {status}."
    if is_locked(run):
        return "Its run is under way."
    return "Its last run was killed: the same command goes on, and what was paid is not paid again."


def is_locked(run: RunDir) -> bool:
    with suppress(FileNotFoundError), open_plain(run.lock) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _prepare_folders(run: RunDir, line: Line, stages: Sequence[str], alone: bool) -> None:
    for folder in (run.records, run.logs, run.artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    # The records of stages that run now, and of all after them, are stale; of a stage by --only, only its own.
    for stage in stages if alone else line.stages:
        if stage not in stages:
            run.unlink((run.step_record(stage) or {}).get("outputs", ()))
        for ending in (".json", ENVELOPE_SUFFIX):
            (run.records / f"{stage}{ending}").unlink(missing_ok=True)
        for folder in run.live.glob(f"{stage}*"):  # one for each training of the stage
            shutil.rmtree(folder, ignore_errors=True)


def check_keys() -> None:
    """Stop a run that could not sign its steps before it begins; if there are no keys at all, create them."""
    folder = keys_folder()
    if ensure_keys(folder):
        message = f"[keys] made a builder's and a releaser's key in {folder}; `qinglan keys --help` explains them"
        say(message, to=sys.stderr)
    load_signer("builder")


def check_existing_keys() -> None:
    """Check the builder's key if there are keys; none is created."""
    if has_keys(keys_folder()):
        load_signer("builder")


def prepare_run(line: Line, config: Config, run: RunDir, stages: Sequence[str], alone: bool) -> Config:
    """Make the run's folders and config.yaml; returns the configuration with a store and absolute paths."""
    _prepare_folders(run, line, stages, alone)
    store = config.register_.store or os.environ.get(STORE_VARIABLE) or str(run.root.resolve().parent / "store")
    # Absolute paths: in another folder the same relative path is another file.
    paths = {name: path.absolute() for name in line.inputs if (path := getattr(config, name)) is not None}
    register = config.register_.model_copy(update={"store": store})
    config = config.model_copy(update={**paths, "register_": register})
    dump_config(config, run.config)
    return config


class Part(NamedTuple):
    """Some stages of a run that are executed together, in the run's folder or in a folder inside it."""

    run: RunDir
    stages: tuple[str, ...]
    alone: bool
    """True if the stages take artifacts of the folder; otherwise they begin with the line's inputs."""

    borrowed: tuple[str, ...] = ()
    """Names of artifacts that are linked from the whole run's folder into the part's folder before its stages run."""

    environment: Mapping[str, str] = MappingProxyType({})
    """Further environment variables of the steps."""

    title: str = ""
    """Name of the part for people; empty if it is the run itself."""


def run_stages(
    line: Line,
    run: RunDir,
    stages: tuple[str, ...],
    inputs: Mapping[str, Path],
    alone: bool,
    quiet: bool,
    gateway: Callable[[dict[str, Any]], AbstractContextManager[str]] = lambda record: nullcontext(""),
    pythons: Mapping[str, str] = MappingProxyType({}),
    parts: Iterable[Part] = (),
) -> dict[str, Any]:
    """Execute the stages; returns the content of run.json, which is written at the start, and at the end even after a
    failure.

    `gateway` starts the run's gateway, yields its URL, and may note the run's cost in the record. Without `parts`,
    all stages are executed together. A part is taken from `parts` only after the outputs of the part before it are
    linked.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    record: dict[str, Any] = {"status": RUNNING, "started": started.isoformat(), "code": code_version()}
    record["ran"] = stages
    # Written before anything else: a run that is killed cannot write its record any more.
    write_json(run.record, record)
    try:
        with gateway(record) as url:
            # absolute: an audit reads the records in another folder than the run's
            uris = {name: str(path.absolute()) for name, path in inputs.items()}
            for number, part in enumerate(parts or [Part(run, stages, alone)]):
                for name in part.borrowed:
                    part.run.link(name, run.artifact(name))
                if part.title and not quiet:
                    say(part.title)
                job = LocalJob(line.name, uris, url, part.stages, part.alone, dict(pythons), dict(part.environment))
                write_job(part.run, job)
                show = partial(link_files, part.run, inputs)
                execute(part.run, line, part.stages, quiet, append=number > 0 and part.run == run, show=show)
                link_files(part.run, inputs, part.stages)  # a later part takes its artifacts from files/
        record["status"] = "done"
    except BaseException:
        record["status"] = "failed"
        raise
    finally:
        link_files(run, inputs, stages)
        record["seconds"] = round(time.monotonic() - clock, 3)
        record["steps"] = {stage: run.step_record(stage) for stage in line.stages}
        record["verdict"] = gate_verdict(record["steps"], stages)
        if "gate_small" in line.stages:
            record["small_verdict"] = gate_verdict(record["steps"], stages, "gate_small")
        write_json(run.record, record)
    return record


def execute(
    run: RunDir, line: Line, stages: Sequence[str], quiet: bool, append: bool = False,
    show: Callable[[Sequence[str]], None] = lambda stages: None,
) -> None:  # fmt: skip
    """Run the child, show its steps, and turn a failure into an error that says what to do.

    With `append`, the child's output is appended to run.log. `show` is called with the names of stages that have just
    ended, while later ones still run, so that their files can be looked at already.
    """
    log, shown = run.logs / "run.log", set[str]()
    with (
        TemporaryDirectory(prefix="qinglan-") as scratch,  # KFP leaves its program files in TMPDIR
        process_guard(STEP_ENDS_SECONDS) as guard,  # if this process is killed, its step ends too
    ):
        child = _start_child(run, log, "ab" if append else "wb", scratch)
        guard(child.pid)
        try:
            with StepDisplay(run, tuple(stages), log, quiet) as live:
                while child.poll() is None:
                    live.update()
                    # in the order of the stages: the last one's lineage is the one that is shown
                    done = [name for name in stages if (run.step_record(name) or {}).get("status") == "done"]
                    if ended := [stage for stage in done if stage not in shown]:
                        show(ended)
                        shown.update(ended)
                    time.sleep(0.2)
                live.update()
        except KeyboardInterrupt as error:
            say("Ctrl-C: the step ends its work, which may take a minute.", to=sys.stderr)
            where = _stop(child, run, stages)
            message = f"Stopped{where and f' in {where}'}. {AGAIN} to go on: {line.rerun_note}"
            raise StepFailed(message, exit_code=INTERRUPTED) from error
        except BaseException:
            _stop(child, run, stages)
            raise
    if child.returncode:
        raise step_failure(run, line, stages, log)


def link_files(run: RunDir, inputs: Mapping[str, Path], stages: Sequence[str]) -> None:
    """Link the outputs of these stages in files/. Links of other stages stay, since the records of a copied run still
    name the first folder.

    If a stage was stopped by its own verdict, only its sheets are linked: people read them, and no stage takes them.
    """
    for name, path in inputs.items():
        if path.exists():
            run.link(name, path)
    for record in (run.step_record(stage) or {} for stage in stages):
        for name, artifact in shown_outputs(record).items():
            run.link(name, Path(artifact["uri"]))
        if lineage := record.get(LINEAGE):
            run.link(LINEAGE, Path(lineage))


def shown_outputs(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's outputs that are linked in files/: all if the step is done, else only its sheets."""
    outputs = record.get("outputs", {})
    if record.get("status") == "done":
        return dict(outputs)
    return {name: item for name, item in outputs.items() if ARTIFACT_FILES[name].endswith(SHEET)}


def gate_verdict(steps: dict[str, Any], stages: Sequence[str], gate: str = "gate") -> dict[str, Any]:
    """Return the gate's word and reasons; empty if the gate is not among these stages, or was not reached."""
    facts = ((steps.get(gate) or {}).get("facts") or {}) if gate in stages else {}
    return {"word": facts["verdict"], "reasons": facts["reasons"]} if "verdict" in facts else {}


def raise_if_held(record: dict[str, Any]) -> None:
    """Raise GateHeldError if the gate held: that is no fault, but no later step may follow."""
    if record["verdict"].get("word") == "hold":
        raise GateHeldError("The gate says hold, so there is no release. The verdict names its reasons.")


def _stop(child: "subprocess.Popen[bytes]", run: RunDir, stages: Sequence[str]) -> str:
    """Stop the child and its step, record the step as failed, and return the step's name; empty if no step ran.

    This waits until the step's training has ended, because it must not still run when the command is called again.
    """
    with suppress(ProcessLookupError):  # it ended by itself just now
        os.killpg(child.pid, signal.SIGTERM)
    # First the group, then the child: wait_for_process_group kills what has not ended after STEP_ENDS_SECONDS, and a
    # child.wait() before it would block on a child that ignores SIGTERM.
    wait_for_process_group(child.pid, STEP_ENDS_SECONDS)
    child.wait()
    for stage in stages:
        if (record := run.step_record(stage)) and record["status"] == "running":
            ended = {"status": "failed", "ended": datetime.now(UTC).isoformat(timespec="milliseconds")}
            write_json(run.records / f"{stage}.json", record | ended | {"failure": STOPPED})
            return stage
    return ""


def _start_child(run: RunDir, log: Path, mode: Literal["wb", "ab"], scratch: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "TMPDIR": scratch, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "pipelines.execute.local_execution", str(run.root)]
    with open_private(log, mode) as output:
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=environment
        )


def step_failure(run: RunDir, line: Line, stages: Sequence[str], log: Path) -> StepFailed:
    """Build the error for a run whose child failed, with the failed step, the step's error and the next step."""
    mended = f"{AGAIN} when that is mended: {line.rerun_note}"
    for stage in stages:
        record = run.step_record(stage)
        if record and record["status"] in ("failed", "running"):
            failure = record.get("failure") or KILLED
            detail = failure["message"] if failure["explained"] else failure["traceback"]
            named = detail.removeprefix(f"{stage}: ")  # many errors name their step already
            what = [f"{stage}:", *quoted(named)] if "\n" in named else [f"{stage}: {named}"]
            sheets = [f"To read: {run.shown(name)}" for name in shown_outputs(record)]
            advice = [] if AGAIN in detail else [mended]  # an outage's error already gives this advice
            return StepFailed(*what, *sheets, f"Log: {log}", *advice, exit_code=failure["exit_code"])
    tail = quoted("\n".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-15:]))
    return StepFailed(f"The graph stopped outside of a step. {log} ends:", *tail, mended, exit_code=1)
