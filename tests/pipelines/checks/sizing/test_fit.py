"""Every shipped profile fits its machines, and a hopeless one is refused."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from commands.cli import app
from pipelines.checks.sizing.check import check_fit, check_room
from pipelines.checks.sizing.needs import Machine
from pipelines.checks.sizing.profiles import load_profile
from pipelines.checks.sizing.report import Workload, fit_report
from pipelines.checks.sizing.table import NEXT_STEPS, verdict_lines
from pipelines.lines.config import STYLES, TRAINING, load_config
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import ConfigError
from qinglan.sizing.cards import card_of_size
from qinglan.sizing.constants import GB
from tests.pipelines.checks.sizing.fit_reports import Change, peaks, report_of, rewriter, with_changes

PROFILES = [path.stem for path in TRAINING.glob("*.yaml")] + [f"style/{path.stem}" for path in STYLES.glob("*.yaml")]


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_shipped_profile_fits_its_machines(name: str) -> None:
    report = fit_report(load_profile(name), name)

    assert report is None or report.fits, list(verdict_lines(report))
    assert report or name in ("laptop", "style/laptop")


def test_a_critic_of_32b_on_four_cards_is_refused_with_a_next_step() -> None:
    config = rewriter(Change("ppo.critic_model", ""))

    with pytest.raises(ConfigError) as caught:
        check_fit(config)

    assert "ppo needs 164.6" in str(caught.value) and NEXT_STEPS["card"] in str(caught.value)
    check_fit(with_changes(config, [Change("ppo.critic_model", "Qwen/Qwen3-4B")]))


def test_an_option_that_a_profile_has_no_use_for_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--gpus 4: the style line trains on one card"):
        load_profile("style/a100", gpus=4)
    for name in ("a100x4", "style/a100"):
        with pytest.raises(ConfigError, match=rf"--profile demo: {name} is a profile itself"):
            load_profile(name, "demo")


def test_what_waits_in_the_machines_memory_is_not_on_the_cards() -> None:
    held = peaks(report_of(rewriter(Change("ppo.hardware.offload", False))))
    waiting = peaks(report_of(rewriter(Change("ppo.hardware.offload", True))))

    assert waiting["ppo card"] < held["ppo card"] and waiting["ppo host"] > held["ppo host"]


def test_a_rollout_without_room_for_a_sample_is_refused() -> None:
    config = rewriter(Change("ppo.hardware.rollout_memory", 0.2))

    with pytest.raises(ConfigError, match=r"ppo needs 19.* of rollout"):
        check_fit(config)


def test_no_rows_and_no_paid_call_are_needed_to_count_steps() -> None:
    config = rewriter()
    report = fit_report(config, "test", load=Workload(560))
    assert report

    sft, ppo = report.paces
    assert (sft.steps_each, sft.steps) == (9, 2 * 27), "with the teacher's further rows, and without"
    assert (ppo.steps_each, ppo.steps) == (560 // config.ppo.prompts, 10 * (560 // config.ppo.prompts))
    assert sft.validations <= 2 * config.sft.validations and ppo.validations == config.ppo.validations + 1
    assert ppo.hours and ppo.cost == pytest.approx(ppo.hours * 4 * config.evaluate.gpu_hour_price, rel=0.05)


def test_hours_on_two_nodes_are_those_of_the_network_between_them() -> None:
    """On two nodes of four cards a step of PPO waits longer for weights than one node of four computes."""
    hours = {}
    for profile, network in (("a100x4", 100.0), ("a100-multinode", 100.0), ("a100-multinode", 3200.0)):
        config = load_config("fivedoctors", "gpt", training=profile, cluster={"network": network})
        report = fit_report(config, "test", load=Workload(560))
        assert report
        hours[profile, network] = report.paces[1].hours or 0.0
        assert any(f"assume {network:g} Gbit/s" in note for note in report.notes) == (profile == "a100-multinode")

    assert hours["a100-multinode", 100.0] > hours["a100x4", 100.0] > hours["a100-multinode", 3200.0]


def test_hours_are_not_invented_for_a_card_of_unknown_speed() -> None:
    report = report_of(rewriter(), memory=90)

    assert [pace.hours for pace in report.paces] == [None, None]
    assert any("the speed of 90 GB is not known" in note for note in report.notes)


def test_a_base_on_the_volume_of_base_weights_is_not_copied_to_scratch() -> None:
    shared = rewriter()
    own_cluster = shared.model_copy(update={"cluster": shared.cluster.model_copy(update={"base_weights": ""})})

    needed = [peaks(report_of(config))["run scratch volume"] for config in (shared, own_cluster)]

    assert needed[1] - needed[0] == pytest.approx(65.5, abs=0.1)


def test_without_further_rows_sft_trains_once_and_leaves_one_model() -> None:
    both = rewriter()
    once = rewriter(Change("augment.hindsight_calls", 0), Change("augment.pseudo_calls", 0))
    reports = [fit_report(config, "test", load=Workload(560)) for config in (both, once)]
    assert all(reports)

    steps = [report.paces[0].steps for report in reports if report]
    needed = [peaks(report)["run scratch volume"] for report in reports if report]

    assert steps == [2 * 27, 27] and needed[0] - needed[1] == pytest.approx(65.5, abs=0.1)


@pytest.mark.parametrize(
    ("host", "disk", "fault"), [(600, 200, r"run needs .* of scratch volume"), (64, 9000, r"sft needs .* GB of host")]
)
def test_a_machine_with_little_memory_or_disk_is_refused(host: float, disk: float, fault: str) -> None:
    machine = Machine(card_of_size(80), host=host * GB, disk=disk * GB)

    with pytest.raises(ConfigError, match=fault):
        check_fit(rewriter(), machine, ["sft", "ppo"])


def test_stages_that_do_not_run_are_not_checked() -> None:
    hopeless = rewriter(Change("ppo.critic_model", ""))
    machine = Machine(card_of_size(80), host=600 * GB, disk=9000 * GB)

    check_fit(hopeless, machine, ["sft"])
    with pytest.raises(ConfigError, match="ppo needs"):
        check_fit(hopeless, machine, ["sft", "ppo"])


def test_a_machine_without_a_gpu_is_left_to_the_check_of_gpus(tmp_path: Path) -> None:
    check_room(rewriter(Change("ppo.critic_model", "")), tmp_path / "run", ["sft", "ppo"])
    check_room(load_profile("laptop"), tmp_path / "run", ["sft", "ppo"])


def test_a_run_on_this_machine_is_refused_by_what_its_own_card_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's answers of a card of 24 GB stand in for a GPU, which a test cannot have."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA L4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(total_memory=22 * 2**30))

    with pytest.raises(ConfigError, match=r"sft needs .* of card at 'a step', and there are 23\.6"):
        check_room(rewriter(), tmp_path / "run", ["sft"])
    check_room(rewriter(), tmp_path / "run", ["generate", "validate"])


def test_other_cards_are_tried_by_their_number_and_size() -> None:
    config = load_profile("a100x4", gpus=8)
    assert isinstance(config, RunConfig)

    assert (config.sft.gpus, config.ppo.hardware.per_node) == (8, 8)
    profile = load_profile("a100x4", gpus=1)
    assert isinstance(profile, RunConfig) and profile.ppo.hardware.tensor_parallel == 1


def test_a_number_of_cards_that_the_settings_cannot_share_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^--gpus 3: ppo: batch 64 .* 1, 2, 4, 8, 16"):
        load_profile("a100x4", gpus=3)


@pytest.mark.parametrize("profile", ["cpu", "laptop", "style/cpu", "style/laptop"])
def test_a_card_for_a_training_without_one_is_refused(profile: str) -> None:
    answer = CliRunner().invoke(app, ["fit", profile, "--gpu-memory", "40"])

    assert isinstance(answer.exception, ConfigError) and "--gpu-memory: " in str(answer.exception)


@pytest.mark.parametrize("size", ["inf", "nan", "1e300", "0"])
def test_a_card_of_a_size_that_no_card_has_is_refused(size: str) -> None:
    assert CliRunner().invoke(app, ["fit", "a100x4", "--gpu-memory", size]).exit_code == 2


def test_weights_that_are_here_say_their_own_shape_and_another_architecture_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "Qwen" / "Qwen3-32B" / "config.json"
    config.parent.mkdir(parents=True)
    small = {"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "vocab_size": 100}  # fmt: skip
    monkeypatch.setenv("QINGLAN_BASE_WEIGHTS", str(tmp_path))

    config.write_text(json.dumps(small), encoding="utf-8")
    assert peaks(report_of(rewriter()))["sft card"] < 5
    config.write_text('{"model_type": "modernbert"}', encoding="utf-8")
    assert fit_report(rewriter(), "test") is None
    check_fit(rewriter(Change("ppo.critic_model", "")))


def test_a_model_of_unknown_shape_is_named_and_said_to_be_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = rewriter()
    base = unknown.base.model_copy(update={"model": "meta-llama/Llama-3-8B"})
    unknown = unknown.model_copy(update={"base": base})
    monkeypatch.setattr("pipelines.checks.sizing.profiles.load_profile", lambda *options: unknown)

    words, printed = (CliRunner().invoke(app, ["fit", "acme", *options]) for options in ([], ["--json"]))

    assert words.exit_code == printed.exit_code == 2 and "meta-llama/Llama-3-8B" in words.stdout
    assert json.loads(printed.stdout) == {"profile": "acme", "fits": None, "unknown": ["meta-llama/Llama-3-8B"]}


def test_too_few_rows_for_a_step_of_ppo_are_noted_and_cost_nothing() -> None:
    config = rewriter()
    few, enough = (fit_report(config, "test", load=Workload(rows)) for rows in (10, config.ppo.prompts))
    assert few and enough

    assert [any("no step" in note for note in report.notes) for report in (few, enough)] == [True, False]
    assert (few.paces[1].steps, few.paces[1].cost) == (0, None) and enough.paces[1].cost


def test_what_the_manifests_claim_is_marked_as_theirs() -> None:
    of_cluster = {room.stage for room in report_of(rewriter(name="one-gpu-24")).rooms if room.by_manifests}
    machine = Machine(card_of_size(80), host=600 * GB, disk=9000 * GB)
    here = fit_report(rewriter(), "test", machine=machine)

    assert of_cluster == {"serve", "run"}
    assert here and {room.stage for room in here.rooms if room.by_manifests} == {"serve"}
