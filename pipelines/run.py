"""`qinglan run`: start what the laptop lacks, execute the graph, show it live, and leave a record.

Asking again is free: the run's journal holds every paid answer, so a run that stopped is simply run again.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.data.convert.fates import split_of
from pipelines.config import RunConfig, dump_config
from pipelines.live import Live
from pipelines.local import Job, write_job
from pipelines.preflight import check_given, check_machine, check_questions, check_served, knowledge_bases, own_files
from pipelines.rundir import NAMES, RunDir, write_json
from pipelines.thread import ASKS_THE_GATEWAY, LAST, STAGES, stages_until
from qinglan.errors import ConfigError, Held, QinglanError
from qinglan.lineage.record import code_version
from qinglan.services import end_with_parent, service

ROLES = ("teacher", "judge", "examiner")
ENOUGH_LABELS = 1_000
"""Rows to fit the local reranker on: with all 2,431 of a sample, scores separate no better (AUC .87, .85)."""

KILLED: dict[str, Any] = {"message": "the step was killed", "explained": True, "exit_code": 1}
INTERRUPTED = 130
STOPPED: dict[str, Any] = {"message": "the run was stopped", "explained": True, "exit_code": INTERRUPTED}
KEPT = "what was paid for is in the journal and costs nothing."
MENDED = f"Run the same command again when that is mended: {KEPT}"


class StepFailed(QinglanError):
    """A step ended with an error; its record tells which, and the exit code is that error's."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run_pipeline(
    config: RunConfig, root: Path, only: str = "", until: str = LAST, quiet: bool = False
) -> dict[str, Any]:
    """Execute the thread up to a stage, or one stage of it; the answer is what run.json holds."""
    if unknown := {only or until, until} - set(STAGES):
        raise ConfigError(f"No stage {unknown.pop()!r}. There are: {', '.join(STAGES)}.")
    run, stages = RunDir(root), (only,) if only else stages_until(until)
    config = own_files(config, run, only)
    check_given(config)
    check_machine(config, stages)
    tenants = check_questions(config)
    with _locked(run):
        _prepare(run, config, stages)
        return _run(config, run, stages, only, tenants, quiet)


def _run(
    config: RunConfig, run: RunDir, stages: tuple[str, ...], only: str, tenants: set[str], quiet: bool
) -> dict[str, Any]:
    started, clock = datetime.now(UTC), time.monotonic()
    record: dict[str, Any] = {"status": "failed", "started": started.isoformat(), "code": code_version()}
    try:
        with ExitStack() as services:
            gateway_url = start_services(config, run, stages, services)
            if gateway_url:
                check_served(gateway_url, tenants, config.validate_.kb_name)
                record["gateway_before"] = _gateway_report(gateway_url)
            write_job(
                run, Job(str(config.questions), str(config.knowledge_base), gateway_url, stages, alone=bool(only))
            )
            _execute(run, stages, quiet)
            record["gateway"] = _gateway_report(gateway_url)
        record["status"] = "done"
    finally:
        _link_files(config, run, stages)
        record["seconds"] = round(time.monotonic() - clock, 3)
        record["steps"] = {stage: run.step_record(stage) for stage in STAGES}
        record["verdict"] = verdict(record["steps"])
        write_json(run.record, record)
    return record


def verdict(steps: dict[str, Any]) -> dict[str, Any]:
    """What the gate has said, where it was reached: the word and its reasons."""
    said = (steps.get("gate") or {}).get("facts") or {}
    return {"word": said["verdict"], "reasons": said["reasons"]} if "verdict" in said else {}


def refuse_held(record: dict[str, Any]) -> None:
    """End as the gate has said: a hold is no fault, but what follows must not happen."""
    if record["verdict"].get("word") == "hold":
        raise Held("The gate says hold: " + " ".join(record["verdict"]["reasons"]))


@contextmanager
def _locked(run: RunDir) -> Iterator[None]:
    """One run at a time in a folder: two would write over each other's records."""
    run.root.mkdir(parents=True, exist_ok=True)
    with run.lock.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{run.root}: a run is under way there. Wait for it, or give --out another.") from None
        yield


def _prepare(run: RunDir, config: RunConfig, stages: tuple[str, ...]) -> None:
    for folder in (run.records, run.logs, run.artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    if (candidate := run.files / NAMES["release_candidate"]).is_symlink():
        candidate.unlink()  # of an earlier verdict; the new one may hold
    for stage in stages:
        (run.records / f"{stage}.json").unlink(missing_ok=True)
    dump_config(config, run.config)


def start_services(config: RunConfig, run: RunDir, stages: tuple[str, ...], stack: ExitStack) -> str:
    """Start what the stages need; the answer is the gateway's URL, all that a stage knows."""
    if not ASKS_THE_GATEWAY & set(stages):
        return ""
    gateway = config.gateway
    bases = [word for tenant, path in knowledge_bases(config).items() for word in ("--kb", f"{tenant}={path}")]
    if config.stand_ins.teacher:
        arguments = [*bases, "--latency", str(config.stand_ins.teacher_seconds), "--port", "0"]
        here = {"base_url": stack.enter_context(service("teacher", arguments, run.logs / "teacher.log"))}
        gateway = gateway.model_copy(
            update={role: model.model_copy(update=here) for role in ROLES if (model := getattr(gateway, role))}
        )
    if config.stand_ins.rag:
        arguments = [*bases, "--index-root", str(run.index), "--port", "0"]
        for tenant, path in knowledge_bases(config).items():
            if reranker := _fit_reranker(config, run, tenant, path):
                arguments += ["--reranker", f"{tenant}={reranker}"]
        here = {"base_url": stack.enter_context(service("rag", arguments, run.logs / "rag.log"))}
        gateway = gateway.model_copy(update={"rag": gateway.rag.model_copy(update=here)})
    settings = run.root / "gateway.json"
    write_json(settings, gateway.model_dump(mode="json"))
    arguments = ["--config", str(settings), "--journal", str(run.journal)]
    arguments += ["--retrieval-cache", str(run.retrievals), "--port", "0"]
    return stack.enter_context(service("gateway", arguments, run.logs / "gateway.log"))


def _fit_reranker(config: RunConfig, run: RunDir, tenant: str, knowledge_base: Path) -> Path | None:
    """Fit the local reranker on training conversations that people labelled, where there are any."""
    from qinglan.files import dump_line, replaced
    from qinglan.questions import read_questions
    from qinglan.rows import Question
    from serving.rag.fitting import fit_from_rows

    assert config.questions is not None
    labelled = run.index / f"{tenant}-labelled.jsonl"
    count = 0
    with replaced(labelled) as partial, partial.open("wb") as file:
        for row in read_questions(config.questions, config.generate.columns, config.tenant_id):
            if not isinstance(row, Question) or not row.gold or row.tenant_id != tenant:
                continue
            split = row.split or split_of((row.tenant_id, row.conversation_id), config.convert)
            if split == "train":
                file.write(dump_line(row.model_copy(update={"split": split})))
                count += 1
            if count == ENOUGH_LABELS:
                break
    if not count:
        return None
    reranker = run.index / f"{tenant}-reranker.json"
    fit_from_rows(labelled, knowledge_base, run.index, tenant, reranker)
    return reranker


def _execute(run: RunDir, stages: tuple[str, ...], quiet: bool) -> None:
    """Run the child, show its steps, and turn a failure into an error that says what to do."""
    log = run.logs / "run.log"
    with TemporaryDirectory(prefix="qinglan-") as scratch:  # KFP leaves its program files in TMPDIR
        child = _start_child(run, log, {"TMPDIR": scratch, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"})
        try:
            with Live(run, stages, log, quiet) as live:
                while child.poll() is None:
                    live.update()
                    time.sleep(0.2)
                live.update()
        except KeyboardInterrupt:
            where = _stop(child, run, stages)
            message = f"Stopped{where and f' in {where}'}. Run the same command again to go on: {KEPT}"
            raise StepFailed(message, INTERRUPTED) from None
        except BaseException:
            _stop(child, run, stages)
            raise
    if child.returncode:
        raise _failure(run, stages, log)


def _stop(child: "subprocess.Popen[bytes]", run: RunDir, stages: tuple[str, ...]) -> str:
    """End the child; the step it was in could not say so itself. The answer is that step's name."""
    os.killpg(child.pid, signal.SIGTERM)
    child.wait()
    for stage in stages:
        if (record := run.step_record(stage)) and record["status"] == "running":
            ended = {"status": "failed", "ended": datetime.now(UTC).isoformat(timespec="milliseconds")}
            write_json(run.records / f"{stage}.json", record | ended | {"failure": STOPPED})
            return stage
    return ""


def _start_child(run: RunDir, log: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines.local", str(run.root)],
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=end_with_parent,
            env={**os.environ, **environment},
        )  # fmt: skip


def _failure(run: RunDir, stages: tuple[str, ...], log: Path) -> StepFailed:
    for stage in stages:
        record = run.step_record(stage)
        if record and record["status"] in ("failed", "running"):
            failure = record.get("failure") or KILLED
            detail = failure["message"] if failure["explained"] else failure["traceback"]
            return StepFailed(f"{stage}: {detail}\nLog: {log}\n{MENDED}", failure["exit_code"])
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-15:])
    return StepFailed(f"The graph stopped outside of a step. {log} ends:\n{tail}\n{MENDED}", 1)


def _gateway_report(gateway_url: str) -> dict[str, Any]:
    if not gateway_url:
        return {}
    import httpx

    report: dict[str, Any] = httpx.get(f"{gateway_url}/v1/journal/report", timeout=30).json()
    return report


def _link_files(config: RunConfig, run: RunDir, stages: tuple[str, ...]) -> None:
    """Show what these stages made; the others' links stay, as a copied run's records still name the first folder."""
    for name, path in (("questions", config.questions), ("knowledge_base", config.knowledge_base)):
        if path is not None and path.exists():
            run.link(name, path)
    for stage in stages:
        record = run.step_record(stage)
        for name, made in (record or {}).get("outputs", {}).items():
            run.link(name, Path(made["uri"]))
