"""Trackers of a training: refused early where a key is missing, named by run and stage, and never a key in a file."""

import os
from pathlib import Path

import pytest

from qinglan.errors import ConfigError
from qinglan.live.trackers import check_installed, check_trackers, tracked, tracker_environment, training_name

WANDB, MLFLOW = {"WANDB_API_KEY": "k" * 40}, {"MLFLOW_TRACKING_URI": "http://mlflow:5000"}


@pytest.mark.parametrize(
    ("trackers", "environment", "gateway_has_mlflow", "refusal"),
    [
        (("tensorboard",), {}, False, ""),
        ((), {}, False, ""),
        (("wandb",), {}, True, "WANDB_API_KEY is not set"),
        (("wandb",), {"WANDB_MODE": "online"}, False, "WANDB_API_KEY is not set"),
        (("wandb",), WANDB, False, ""),
        (("wandb",), {"WANDB_MODE": "offline"}, False, ""),
        (("mlflow",), WANDB, False, "MLFLOW_TRACKING_URI is not set"),
        (("mlflow",), MLFLOW, False, ""),
        (("mlflow",), {}, True, ""),
    ],
)
def test_a_tracker_without_key_or_address_is_refused(
    trackers: tuple[str, ...], environment: dict[str, str], gateway_has_mlflow: bool, refusal: str
) -> None:
    if not refusal:
        check_trackers(trackers, environment, gateway_has_mlflow)
        return
    with pytest.raises(ConfigError, match=refusal):
        check_trackers(trackers, environment, gateway_has_mlflow)


def test_all_trackers_whose_package_is_not_here_are_named_with_their_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qinglan.live.trackers.find_spec", lambda name: name if name == "tensorboard" else None)

    check_installed(("tensorboard",))
    with pytest.raises(ConfigError, match=r"names wandb, mlflow, .* pip install wandb mlflow-skinny$"):
        check_installed(("tensorboard", "wandb", "mlflow"))


def test_each_tracker_gets_the_names_of_run_and_stage_and_files_in_the_stages_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_RUN", "run-7")

    added = tracker_environment(("tensorboard", "wandb", "mlflow"), "sft", tmp_path, "http://gateway:8300", {})

    assert training_name("sft") == "run-7-sft"
    assert added == {
        "TENSORBOARD_DIR": f"{tmp_path}/tensorboard", "TENSORBOARD_LOGGING_DIR": f"{tmp_path}/tensorboard",
        "WANDB_PROJECT": "qinglan", "WANDB_RUN_GROUP": "run-7", "WANDB_JOB_TYPE": "sft", "WANDB_DIR": str(tmp_path),
        "WANDB_MODE": "offline",
        "MLFLOW_EXPERIMENT_NAME": "qinglan", "MLFLOW_TRACKING_URI": "http://gateway:8300/trackers/mlflow",
        "no_proxy": "gateway", "NO_PROXY": "gateway",
    }  # fmt: skip


def test_on_a_cluster_mlflows_client_has_the_time_that_a_step_has_for_its_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_OUTAGE_SECONDS", "900")

    added = tracker_environment(("mlflow",), "sft", tmp_path, "http://gateway:8300", {})

    retries, factor = (int(added[f"MLFLOW_HTTP_REQUEST_{name}"]) for name in ("MAX_RETRIES", "BACKOFF_FACTOR"))
    # urllib3's pauses: none before the first, then factor * 2^(n - 1), at most two minutes.
    assert sum(min(120, factor * 2 ** (number - 1)) for number in range(2, retries + 1)) == 900


def test_what_the_environment_says_goes_before_the_gateway_and_a_key_is_not_copied(tmp_path: Path) -> None:
    added = tracker_environment(("wandb", "mlflow"), "ppo", tmp_path, "http://gateway:8300", WANDB | MLFLOW)

    assert added["MLFLOW_TRACKING_URI"] == MLFLOW["MLFLOW_TRACKING_URI"]
    assert added["WANDB_MODE"] == "online"
    assert WANDB["WANDB_API_KEY"] not in added.values()


def test_the_environment_is_as_before_when_the_training_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_DIR", "before")

    with tracked(("wandb",), "sft", tmp_path, "") as added:
        assert os.environ["WANDB_DIR"] == str(tmp_path) and os.environ["WANDB_MODE"] == "offline"
        assert added["WANDB_PROJECT"] == "qinglan"

    assert os.environ["WANDB_DIR"] == "before" and "WANDB_MODE" not in os.environ
    assert "no WANDB_API_KEY here, so its files stay in the stage's log" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_of_wandb_in_this_process_is_whole_when_the_training_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with tracked(("wandb",), "style", tmp_path, ""):
        wandb.init(name=training_name("style"))
        wandb.log({"loss": 1.0})

    assert wandb.run is None
    [file] = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"loss" in file.read_bytes()


@pytest.mark.parametrize(
    ("environment", "hosts"),
    [
        ({}, "gateway"),
        ({"NO_PROXY": "a,b"}, "gateway,a,b"),
        ({"no_proxy": "c", "NO_PROXY": "a,b"}, "gateway,c"),
        ({"no_proxy": "", "NO_PROXY": "a"}, "gateway,a"),
    ],
)
def test_mlflows_client_reaches_the_gateway_without_a_proxy(
    tmp_path: Path, environment: dict[str, str], hosts: str
) -> None:
    proxied = {"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "socks5://127.0.0.1:9", **environment}
    added = tracker_environment(("mlflow",), "sft", tmp_path, "http://gateway:8300", proxied)

    assert (added["no_proxy"], added["NO_PROXY"]) == (hosts, hosts)
    assert "no_proxy" not in tracker_environment(("mlflow",), "sft", tmp_path, "http://g", {**proxied, **MLFLOW})
