"""A training reports to a real gateway on a socket: people, programs and Prometheus read it there."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

import httpx
import orjson
import pytest

from qinglan.errors import DataError
from qinglan.live import outlets
from qinglan.live.alarms import Alarm
from qinglan.live.view import live_training
from serving.gateway.trainings import ENDED_SECONDS, MOST, PLACE_SECONDS, RUNNING_SECONDS, Trainings
from tests.models.silent_training import silent_training
from tests.servers.echo_servers import gateway, gateway_config


def train(url: str) -> dict[str, httpx.Response]:
    """Train two steps; what the gateway says while it runs, and once it ended."""
    answers = {}
    with live_training("sft", "SFT", {"training": "loss"}, gateway_url=url) as live:
        for step in (1, 2):
            live.step({"step": step, "loss": 1 / step}, 8, "<script>alert(1)</script>")
        live.check([Alarm("validation-rising", "warn", "validation loss rises.")])
        live.refresh()
        for path in ("/v1/trainings", "/trainings", "/metrics"):
            answers[path] = httpx.get(url + path, trust_env=False)
    answers["ended"] = httpx.get(f"{url}/v1/trainings", trust_env=False)
    answers["refused"] = httpx.post(f"{url}/v1/trainings", content=b'{"run": "a/b"}', trust_env=False)
    return answers


def test_a_training_is_seen_at_its_gateway_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_RUN", "run-7")
    monkeypatch.delenv(outlets.LIVE_VARIABLE, raising=False)

    async def run() -> dict[str, httpx.Response]:
        async with gateway(gateway_config("http://127.0.0.1:9"), tmp_path) as url:
            return await asyncio.to_thread(train, url)

    answers = asyncio.run(run())

    [running] = answers["/v1/trainings"].json()["trainings"]
    assert (running["run"], running["stage"], running["state"]) == ("run-7", "sft", "running")
    assert running["curves"]["training"] == [[1, 1.0], [2, 0.5]]
    page = answers["/trainings"].text
    assert answers["/trainings"].headers["content-type"].startswith("text/html")
    assert "sft · running" in page and "validation loss rises." in page
    assert "&lt;script&gt;" in page and "<script" not in page
    labels = 'run="run-7",stage="sft"'
    metrics = answers["/metrics"].text
    assert f"qinglan_training_running{{{labels}}} 1.0" in metrics
    assert (
        f"qinglan_training_step{{{labels}}} 2.0" in metrics and f"qinglan_training_steps{{{labels}}} 8.0" in metrics
    )
    assert f'qinglan_training_figure{{figure="loss",{labels}}} 0.5' in metrics
    assert f'qinglan_training_alarm{{alarm="validation-rising",level="warn",{labels}}} 1.0' in metrics
    assert [training["state"] for training in answers["ended"].json()["trainings"]] == ["done"]
    assert answers["refused"].status_code == 400
    assert "run: String should match pattern" in answers["refused"].json()["error"]["message"]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def report(stage: str, state: str = "running") -> bytes:
    live = silent_training(stage)
    live.step({"step": 3, "loss": 1.0}, 9)
    return live.snapshot(0.0).model_copy(update={"state": state}).model_dump_json().encode()


def series(trainings: Trainings) -> dict[str, list[str]]:
    """The stages that each metric has."""
    return {family.name: [sample.labels["stage"] for sample in family.samples] for family in trainings.collect()}


@pytest.mark.parametrize(("state", "seconds"), [("running", RUNNING_SECONDS), ("done", ENDED_SECONDS)])
def test_a_training_that_is_silent_for_long_has_no_metrics_any_more(state: str, seconds: float) -> None:
    clock = Clock()
    trainings = Trainings(clock)
    trainings.take(report("sft", state))

    clock.now += seconds
    assert series(trainings)["qinglan_training_step"] == ["sft"]
    clock.now += 1
    assert {stage for stages in series(trainings).values() for stage in stages} == set()
    assert [training.state for training in trainings.snapshots()] == [state], "the page still has it"


def test_of_too_many_trainings_the_one_that_was_silent_longest_is_forgotten() -> None:
    clock = Clock()
    trainings = Trainings(clock)
    for number in range(MOST):
        trainings.take(report(f"stage-{number}", "done"))
    clock.now += ENDED_SECONDS + 1
    trainings.take(report("stage-0"))
    trainings.take(report("new"))

    stages = [training.stage for training in trainings.snapshots()]
    assert len(stages) == MOST
    assert stages[:2] == ["new", "stage-0"] and "stage-1" not in stages


def test_a_flood_of_new_names_pushes_out_no_training_that_still_reports() -> None:
    trainings = Trainings()
    trainings.take(report("sft"))
    refused = 0
    for number in range(200):
        try:
            trainings.take(report(f"flood-{number}"))
        except DataError:
            refused += 1
    trainings.take(report("sft", "done"))

    assert refused == 200 - (MOST - 1)
    assert (trainings.snapshots()[0].stage, trainings.snapshots()[0].state) == ("sft", "done")


@pytest.mark.parametrize(("seconds", "is_taken"), [(0, False), (PLACE_SECONDS, False), (PLACE_SECONDS + 1, True)])
def test_made_up_names_that_were_posted_once_refuse_no_training_for_long(seconds: float, is_taken: bool) -> None:
    clock = Clock()
    trainings = Trainings(clock)
    for number in range(MOST):
        trainings.take(report(f"made-up-{number}"))
    clock.now += seconds

    with nullcontext() if is_taken else pytest.raises(DataError):
        trainings.take(report("sft"))
    assert (trainings.snapshots()[0].stage == "sft") is is_taken


def changed(**fields: str) -> bytes:
    """A snapshot with some fields written as given, which need not be JSON's own range of numbers."""
    values = {**orjson.loads(report("sft")), **{name: f"<{name}>" for name in fields}}
    body = orjson.dumps(values).decode()
    for name, text in fields.items():
        body = body.replace(f'"<{name}>"', text)
    return body.encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"run": 1}',
        report("sft").replace(b'"loss":1.0', b'"lo ss":1.0'),
        changed(step="1" + "0" * 400),
        changed(total="1" + "0" * 400),
        changed(step="-1"),
        changed(step="1000000000001"),
        changed(started="-1e308"),
        changed(stepped="1e308"),
        changed(written="-1"),
        changed(written="NaN"),
        changed(seconds_left="Infinity"),
    ],
)
def test_what_is_no_snapshot_is_refused(body: bytes) -> None:
    with pytest.raises(DataError, match="body: "):
        Trainings().take(body)
