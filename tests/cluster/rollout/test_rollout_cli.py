"""`qinglan rollout` as a person types it, at a real API server; the test plays the controller."""

import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from minio import Minio as Client

from qinglan.files.digests import digest
from qinglan.lineage.signing.trust import TRUST_FILE
from qinglan.store import open_store
from serving.rollout.sequential import Count, Score
from serving.rollout.state import State
from tests.cluster.kubectl import Kubectl
from tests.cluster.rollout.test_modelrollout import rollout
from tests.cluster.servers import Minio
from tests.releases.registered_release import NAME, use_keys
from tests.releases.whole_release import make_whole_release

QINGLAN = "from commands.cli import main; main()"
NOW = 1.79e9


class Person(NamedTuple):
    """Somebody with a KUBECONFIG, in one namespace."""

    kubectl: Kubectl
    namespace: str

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", QINGLAN, "rollout", *words, "-n", self.namespace]

    def __call__(self, *words: str, code: int = 0, **variables: str) -> str:
        """What it says on stdout; on stderr, where it ends with another code than 0."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubectl.kubeconfig), **variables}
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr if code else done.stdout

    def make(self, name: str, **spec: Any) -> None:
        manifest = rollout(self.namespace, name)
        manifest["spec"] |= spec
        self.kubectl.must("create", "-f", "-", manifests=[manifest])

    def write(self, name: str, state: State) -> None:
        """As the controller would."""
        status = {"status": state.model_dump(mode="json", by_alias=True)}
        self.kubectl.must("patch", "modelrollout", name, "-n", self.namespace, "--subresource=status",
                          "--type=merge", f"-p={json.dumps(status)}")  # fmt: skip

    def spec(self, name: str) -> Any:
        return self.kubectl.get("modelrollout", name, self.namespace)["spec"]


@pytest.fixture
def person(api: Kubectl, namespace: str) -> Person:
    return Person(api, namespace)


def analysed(percent: int = 5) -> State:
    score = Score(check="errors", margin=0.05, canary=Count(500, 3), stable=Count(9500, 20), until=1.0)
    state = State(phase="Analyse", percent=percent, step_seconds=60.0, evidence=(score,))
    return state.with_record(NOW, "apply", "the canary starts without users").with_record(
        NOW + 60, "pass", "5 % is earned", True
    )


def ended(outcome: Any, why: str) -> State:
    done = analysed().model_copy(update={"phase": "Done", "outcome": outcome, "reasons": (why,) if why else ()})
    return done.with_record(NOW + 120, str(outcome), why)


def test_the_history_has_each_decision_with_its_numbers(person: Person) -> None:
    person.make("rewriter-1")
    person.write("rewriter-1", analysed())

    lines = person("history", "rewriter").splitlines()

    assert "the canary starts without users" in lines[0]
    assert "canary 3/500 (0.60 %), stable 20/9,500 (0.21 %)" in lines[2]
    history = json.loads(person("history", "rewriter", "--json"))["history"]
    assert [entry["action"] for entry in history] == ["apply", "pass"] and history[1]["figures"][0]["canary"] == [
        500,
        3,
    ]


def test_each_word_becomes_its_field_and_the_api_server_takes_it(person: Person) -> None:
    person.make("rewriter-1")
    person.write("rewriter-1", analysed())

    assert "Analyse" in person("status") and "errors 3 of 500 (0.60 %)" in person("status", "rewriter-1")
    assert "paused at 5 %" in person("pause", "rewriter")
    assert person.spec("rewriter-1")["paused"] is True
    assert json.loads(person("pause", "rewriter", "--json"))["changed"] is False
    assert "goes on from 5 %" in person("resume", "rewriter")
    assert "whatever the evidence says" in person("promote", "rewriter")
    assert (spec := person.spec("rewriter-1"))["promote"] is True and spec["paused"] is False
    assert "takes back the promote" in person("abort", "rewriter-1")
    assert (spec := person.spec("rewriter-1"))["abort"] is True and spec["promote"] is False
    assert "contradicts promote" in person("promote", "rewriter", code=2)


@contextmanager
def watched(person: Person, name: str) -> Iterator["subprocess.Popen[str]"]:
    """A watch, which is killed where it does not end: this test would wait for it."""
    environment = {**os.environ, "KUBECONFIG": str(person.kubectl.kubeconfig), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        person.command("watch", name), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        stuck = threading.Timer(240, process.kill)
        stuck.start()
        try:
            yield process
            process.wait(240)
        finally:
            stuck.cancel()
            process.kill()


@pytest.mark.parametrize(("outcome", "why", "code"), [("Promoted", "", 0), ("RolledBack", "errors: worse", 7)])
def test_a_watch_tells_each_decision_as_it_is_made_and_ends_with_the_rollout(
    person: Person, outcome: str, why: str, code: int
) -> None:
    person.make("rewriter-1")
    with watched(person, "rewriter") as process:
        assert process.stdout is not None and process.stderr is not None
        person.write("rewriter-1", analysed())
        first = process.stdout.readline()
        assert "the canary starts without users" in first and process.poll() is None
        person.write("rewriter-1", ended(outcome, why))
        rest, errors = process.stdout.read(), process.stderr.read()

    assert process.returncode == code, errors
    assert rest.count("5 % is earned") == 1 and rest.splitlines()[-1] == outcome
    assert (why in errors) and ("ended RolledBack" in errors) is (code == 7)


def test_a_watch_of_one_that_somebody_deletes_ends_and_says_so(person: Person) -> None:
    person.make("rewriter-1")
    with watched(person, "rewriter-1") as process:
        person.write("rewriter-1", analysed())
        assert process.stdout is not None and process.stderr is not None
        assert "apply" in process.stdout.readline()
        person.kubectl.must("delete", "modelrollout", "rewriter-1", "-n", person.namespace)
        errors = process.stderr.read()

    assert process.returncode == 3 and "somebody deleted it while it was watched" in errors


def test_start_begins_what_may_be_deployed_and_lists_what_stands_against_the_rest(
    person: Person, s3: Minio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = secrets.token_hex(4)
    Client(s3.endpoint.removeprefix("http://"), s3.key, s3.secret, secure=False).make_bucket(bucket)
    keys, store = use_keys(tmp_path / "keys", monkeypatch), f"s3://{bucket}/fivedoctors"
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    whole = make_whole_release(tmp_path / "whole", keys)
    short = make_whole_release(tmp_path / "short", keys, first=0.25, without="sft")
    for release in (whole, short):
        open_store(store).push(release.folder, digest(release.folder))
    (tmp_path / "deploy.yaml").write_text("rollout: {steps: [10, 100], stepSeconds: 60}\n")
    options = ("--store", store, "--trust", str(keys / TRUST_FILE), "--settings", str(tmp_path / "deploy.yaml"))

    refused = person("start", short.registered.release, *options, code=9)
    answer = person("start", whole.registered.release[:16], *options)
    again = json.loads(person("start", whole.registered.release, *options, "--json"))

    assert "may not be deployed:" in refused and "no statement of sft is in its chain" in refused
    assert f"{NAME} {whole.registered.release[:12]} goes to rewriter by rewriter-1" in answer
    assert again["rollout"] == "rewriter-1" and "on its way" in again["said"]
    assert person.spec("rewriter-1")["steps"] == [10, 100]
