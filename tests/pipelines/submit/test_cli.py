"""`qinglan submit`, `follow` and `cancel`: what they print, what they end with, and what a signal does to them."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from pipelines.checks.cluster.graph import Graph
from pipelines.lines.config import CONFIGS
from pipelines.submit import start_run
from pipelines.submit.follower import Follower
from qinglan.config import load_yaml
from tests.commands.conftest import Here
from tests.kfp.stand_in import SUCCEEDS, Fault, Scene, StandIn
from tests.pipelines.submit.conftest import PARAMETERS, started
from tests.processes.ctrl_c import hears_ctrl_c
from tests.servers.broken_kubeconfigs import BROKEN


def words_of(server: StandIn, graph: Graph) -> tuple[str, ...]:
    return str(graph.path), "--questions", PARAMETERS["questions"], "--endpoint", server.url, "--skip-checks"


@pytest.mark.parametrize(
    ("scene", "code"),
    [
        (SUCCEEDS[-1], 0),
        (Scene("FAILED", {"train": "FAILED"}), 6),
        (Scene("CANCELED"), 6),
        (Scene("SUCCEEDED", {"condition-1": "SKIPPED"}), 7),
    ],
)
def test_the_runs_end_is_the_exit_code(server: StandIn, small: Graph, here: Here, scene: Scene, code: int) -> None:
    server.scenes = (scene,)

    ended, out, _ = here("submit", *words_of(server, small), "--set", "rounds=3")

    [run_id] = server.runs
    assert ended == code
    assert f"page: {server.url}/#/runs/details/{run_id}" in out
    assert server.runs[run_id]["runtime_config"]["parameters"] == {**PARAMETERS, "rounds": 3}


def test_json_is_all_that_stdout_gets(server: StandIn, small: Graph, here: Here) -> None:
    server.scenes = (Scene("FAILED", {"train": "FAILED"}),)

    code, out, err = here("submit", *words_of(server, small), "--json")

    [run_id] = server.runs
    read = json.loads(out)
    assert (code, read["run_id"], read["state"], read["steps"]) == (6, run_id, "FAILED", {"train": "FAILED"})
    assert "✗ train failed" in err


@pytest.mark.slow
def test_a_run_can_be_left_alone_followed_and_canceled(server: StandIn, small: Graph, here: Here) -> None:
    server.scenes = (Scene("RUNNING"), SUCCEEDS[-1])
    code, out, _ = here("submit", *words_of(server, small), "--no-follow")
    [run_id] = server.runs

    assert (code, f"qinglan follow {run_id}" in out, server.looks[run_id]) == (0, True, 0)
    assert here("follow", run_id, "--endpoint", server.url)[0] == 0
    server.scenes = (Scene("CANCELED"),)
    assert here("cancel", run_id, "--endpoint", server.url)[:2] == (
        0,
        f"{server.runs[run_id]['display_name']}: canceled\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "pipeline", "parameters"),
    [
        (
            "rewriter fivedoctors --profile demo --questions s3://b/q --knowledge-base s3://b/kb",
            "qinglan-rewriter-fivedoctors-demo",
            {"questions": "s3://b/q", "knowledge_base": "s3://b/kb"},
        ),
        ("style --profile laptop --labelled s3://b/l", "qinglan-style-laptop", {"labelled": "s3://b/l"}),
    ],
)
def test_a_profile_is_compiled_and_submitted(
    server: StandIn, here: Here, words: str, pipeline: str, parameters: dict[str, str]
) -> None:
    options = ("--endpoint", server.url, "--skip-checks", "--no-follow", "--json")

    code, out, err = here("submit", *words.split(), *options)

    assert (code, json.loads(out)["pipeline"]) == (0, pipeline), err
    assert [pipeline["name"] for pipeline in server.pipelines.values()] == [pipeline]
    assert [run["runtime_config"]["parameters"] for run in server.runs.values()] == [parameters]
    assert ("`qinglan plan` counts them." in err) == words.startswith("rewriter")


def test_a_profile_whose_examiner_is_its_judge_is_noted_before_the_run_is_sent(
    server: StandIn, small: Graph, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_run, "compile_graph", lambda *_: (small, "qinglan-rewriter"))
    gateway = load_yaml(CONFIGS / "fivedoctors" / "gpt.yaml")["gateway"]
    (tmp_path / "alone.yaml").write_text(yaml.safe_dump({"gateway": gateway | {"examiner": gateway["judge"]}}))
    words = ("rewriter", "fivedoctors", "--profile", str(tmp_path / "alone.yaml"), "--endpoint", server.url)

    code, out, err = here("submit", *words, "--questions", "s3://b/q", "--skip-checks", "--no-follow")

    assert code == 0, err
    noted, started = out.index("note: - The examiner is the judge, gpt-5.6-sol"), out.index("started in experiment")
    assert noted < started


def test_a_profile_that_does_not_fit_is_refused_before_anything_is_compiled_or_sent_to_kfp(
    server: StandIn, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_run, "compile_graph", lambda *_: pytest.fail("compiled"))
    profile = load_yaml(CONFIGS / "fivedoctors" / "gpt.yaml") | {"ppo": {"critic_model": ""}}
    (tmp_path / "hopeless.yaml").write_text(yaml.safe_dump(profile))
    words = ("rewriter", "fivedoctors", "--profile", str(tmp_path / "hopeless.yaml"), "--endpoint", server.url)

    code, _, err = here("submit", *words, "--questions", "s3://b/q", "--knowledge-base", "s3://b/k")

    assert code == 2 and "Does not fit: ppo" in err
    assert not server.runs and not server.pipelines


def test_an_unreadable_graph_is_refused_before_anything_is_sent_to_kfp(
    server: StandIn, here: Here, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("foo: [")

    code, _, err = here("submit", str(tmp_path / "bad.yaml"), "--endpoint", server.url)

    assert (code, server.heard) == (2, []) and "bad.yaml" in err


@pytest.mark.parametrize("text", BROKEN)
def test_with_a_broken_kubeconfig_nothing_is_sent(
    server: StandIn, small: Graph, here: Here, tmp_path: Path, text: bytes
) -> None:
    (tmp_path / "none").write_bytes(text)

    code, _, err = here("submit", str(small.path), "--questions", PARAMETERS["questions"], "--endpoint", server.url)

    assert (code, server.uploaded) == (2, [])
    assert f"KUBECONFIG {tmp_path}/none:" in err


@pytest.mark.parametrize("command", ["submit", "follow"])
def test_a_broken_kubeconfig_keeps_nobody_from_following(
    server: StandIn, small: Graph, here: Here, tmp_path: Path, command: str
) -> None:
    (tmp_path / "none").write_text("hello")
    server.scenes = (SUCCEEDS[-1],)
    words = [str(small.path), "--questions", PARAMETERS["questions"], "--skip-checks"]
    if command == "follow":
        words = [started(server, small)[1]]

    code, out, _ = here(command, *words, "--endpoint", server.url, "--json")

    assert (code, json.loads(out)["run_id"], json.loads(out)["state"]) == (0, *server.runs, "SUCCEEDED")


def test_a_run_that_is_started_is_named_whatever_follows(
    server: StandIn, small: Graph, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.scenes = (Scene("RUNNING", {"train": "RUNNING"}),)
    monkeypatch.setattr(Follower, "_report_waits", lambda self: server.faults.append(Fault("/runs/", 403)))

    code, out, err = here("submit", *words_of(server, small), "--json")

    [run_id] = server.runs
    read = json.loads(out)
    assert (code, read["run_id"], read["state"], read["steps"]) == (2, run_id, "RUNNING", {"train": "RUNNING"})
    assert "said 403" in err


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("number", "words", "code", "terminated", "message"),
    [
        (signal.SIGINT, (), 130, 0, "The run goes on. Follow it: qinglan follow"),
        (signal.SIGTERM, ("--cancel-on-interrupt",), 143, 1, "canceled"),
    ],
)
def test_an_interrupted_follow_leaves_the_run_or_cancels_it(
    server: StandIn, small: Graph, number: int, words: tuple[str, ...], code: int, terminated: int, message: str
) -> None:
    server.scenes = (Scene("RUNNING", {"train": "RUNNING"}),)
    _, run_id = started(server, small)
    command = [sys.executable, "-c", "from commands.cli import main; main()", "follow", run_id]
    command += ["--endpoint", server.url, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hears_ctrl_c) as process:
        assert process.stdout is not None
        while "train running" not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(0.1)
        process.send_signal(number)
        try:
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()

    assert process.returncode == code
    assert len([call for call in server.heard if call.endswith(":terminate")]) == terminated
    assert message in out
