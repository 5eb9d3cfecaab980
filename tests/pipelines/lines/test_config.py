"""Every profile in the repository can be read, and holds nothing but differences."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.checks.promotion import promotion
from pipelines.lines.config import (
    CONFIGS,
    TRAINING,
    dump_config,
    load_config,
    load_style_config,
    profiles,
    refuse_uncounted,
    with_training,
)
from pipelines.lines.line import with_base_name
from pipelines.lines.rewriter import RunConfig
from qinglan.config import load_yaml, merge_settings
from qinglan.errors import ConfigError
from qinglan.lineage.signing.trust import TRUST_VARIABLE
from qinglan.rows.splits import SplitConfig

PROFILES = profiles()


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_profile_loads_and_says_nothing_that_is_the_default(path: Path) -> None:
    config = load_config(path.parent.name, path.stem)

    assert config.tenant_id == config.generate.tenant_id == path.parent.name
    assert idle_settings(load_yaml(path), config) == []


def test_a_release_is_named_after_the_tenant_of_its_profile() -> None:
    for name in ("chengla/rewriter", "fivedoctors2/rewriter"):
        with pytest.raises(ConfigError, match=r"register\.name"):
            load_config("fivedoctors", "gpt", register={"name": name})

    config = load_config("fivedoctors", "gpt", register={"name": "fivedoctors/rewriter-2"})
    assert config.register_.name == "fivedoctors/rewriter-2"


def test_validate_leaves_out_the_test_that_convert_draws() -> None:
    config = load_config("fivedoctors", "demo", convert={"seed": 7, "train": 0.6}, validate={"splits": {"seed": 1}})

    assert config.validate_.splits == SplitConfig(seed=7, train=0.6)


def test_a_profile_that_says_a_thing_twice_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((CONFIGS / "fivedoctors" / "gpt.yaml").read_text() + "\nregister: {}\nregister: {}\n")

    with pytest.raises(ConfigError, match=r"mine\.yaml:\d+: .*'register' is there twice"):
        load_config("fivedoctors", str(path))


def test_a_profile_with_a_lax_gate_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    values = load_yaml(CONFIGS / "fivedoctors" / "gpt.yaml")
    path.write_text(yaml.safe_dump(merge_settings(values, {"evaluate": {"gate": {"p": 1}}})))

    with pytest.raises(ConfigError, match=r"mine\.yaml: evaluate: gate\.p"):
        load_config("fivedoctors", str(path))
    with pytest.raises(ConfigError, match="--set: evaluate: draws"):
        load_config("fivedoctors", "gpt", evaluate={"draws": 1})
    with pytest.raises(ConfigError, match=r"--set: evaluate: gate\.rows"):
        load_style_config("laptop", labelled=Path("x.json"), evaluate={"gate": {"rows": 1}})


def test_the_limits_of_this_machines_trust_policy_are_those_of_every_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"rewriter": {"draws": 20_000, "gate": {"rows": 400}}, "style": {"gate": {"rows": 300}}}
    monkeypatch.setenv(TRUST_VARIABLE, yaml.safe_dump({"evaluate": limits}))

    config = load_config("fivedoctors", "gpt", evaluate={"gate": {"p": 0.02}})
    assert (config.evaluate.draws, config.evaluate.gate.rows, config.evaluate.gate.p) == (20_000, 400, 0.02)
    stricter = load_config("fivedoctors", "gpt", evaluate={"gate": {"rows": 500}})
    assert stricter.evaluate.gate.rows == 500
    assert load_style_config("laptop", labelled=Path("x.json")).evaluate.gate.rows == 300


@pytest.mark.parametrize(
    ("counted", "store", "refused"),
    [
        (True, "", True), (True, "/data/store", True), (True, "s3://bucket/prefix", False), (False, "", False),
    ],
)  # fmt: skip
def test_a_cluster_counts_judged_models_where_the_trust_policy_requires_it(
    counted: bool, store: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUST_VARIABLE, yaml.safe_dump({"evaluate": {"counted": counted}}))

    with pytest.raises(ConfigError, match=r"evaluate\.counted") if refused else nullcontext():
        refuse_uncounted(store)


@pytest.mark.parametrize("path", sorted(TRAINING.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_training_file_loads_and_says_nothing_that_is_the_default(path: Path) -> None:
    profile = {"tenant_id": "fivedoctors", **load_yaml(CONFIGS / "fivedoctors" / "gpt.yaml"), **DEPLOYED}
    values = load_yaml(path)

    config = RunConfig.parse(with_training(values, profile), str(path))

    assert idle_settings(values, config) == []


DEPLOYED = {"register": {"store": "s3://qinglan/fivedoctors"}, "deploy": {"namespace": "qinglan"}}
"""The two lines that a profile's comment shows."""


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_two_lines_of_a_profiles_comment_deploy_what_it_trains(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "deploy:" not in text:
        assert path.stem == "demo"
        return
    lines = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    settings = yaml.safe_load("\n".join(lines))

    config = load_config(path.parent.name, str(path), **settings)

    assert settings == DEPLOYED | {"register": {"store": f"s3://qinglan/{path.parent.name}"}}
    assert config.deploy is not None
    assert config.deploy.model_dump(exclude_defaults=True) == {
        "name": f"{path.parent.name}/rewriter", "store": f"s3://qinglan/{path.parent.name}", "namespace": "qinglan",
        "runtime": "qinglan-rewriter-vllm", "format": "qinglan-rewriter-adapter", "adapter": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("deploy", "runtime"),
    [
        (None, None),
        ({"namespace": "a"}, {"namespace": "a", "runtime": "vllm", "adapter": True}),
        ({"namespace": "a", "runtime": "own"}, {"namespace": "a", "runtime": "own"}),
    ],
)
def test_a_trainings_runtime_counts_where_a_profile_deploys_without_one(deploy: Any, runtime: Any) -> None:
    training = {"sft": {"batch": 1}, "deploy": {"runtime": "vllm", "adapter": True}}

    assert with_training(training, {"deploy": deploy}) == {"sft": {"batch": 1}, "deploy": runtime}
    assert with_training(training, {}) == {"sft": {"batch": 1}}


@pytest.mark.parametrize(
    ("setting", "trains"),
    [("sft.tuner", {"sft": {"tuner": "full"}}), ("ppo.lora.rank", {"ppo": {"lora": {"rank": 0}}})],
)
def test_an_adapter_that_no_training_leaves_is_refused_when_the_profile_is_read(setting: str, trains: Any) -> None:
    deploy = DEPLOYED | {"register": {"store": "s3://qinglan/fivedoctors"}}
    assert load_config("fivedoctors", "gpt", **deploy)

    with pytest.raises(ConfigError, match=rf"deploy\.adapter: by {setting} all weights are trained"):
        load_config("fivedoctors", "gpt", **deploy, **trains)

    load_config("fivedoctors", "gpt", **trains)
    load_config("fivedoctors", "gpt", **merge_settings(deploy, {"deploy": {"runtime": "own"}}), **trains)


@pytest.mark.parametrize("settings", ["deploy", "loopback"])
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"steps": [99, 100]}, "99 %"),
        ({"stepSeconds": 1}, "stepSeconds"),
        ({"checks": [{"name": "looks", "margin": 0.1}]}, "checks"),
    ],
)
def test_a_rollout_that_would_be_refused_is_refused_when_the_profile_is_read(
    settings: str, policy: Any, message: str
) -> None:
    rollout = {"rollout": policy}
    loopback = {"requests_a_second": 28}
    values = DEPLOYED | {"deploy": DEPLOYED["deploy"] | rollout} if settings == "deploy" else {}
    values |= {"loopback": loopback | rollout} if settings == "loopback" else {}

    with pytest.raises(ConfigError, match=rf"{settings}\.rollout: .*{message}"):
        load_config("fivedoctors", "gpt", **values)


@pytest.mark.parametrize("path", [p for p in PROFILES if p.stem != "demo"], ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_who_examines_is_not_who_judges(path: Path) -> None:
    config = load_config(path.parent.name, path.stem)

    assert config.pays
    assert config.gateway.models()["examiner"].base_url != config.gateway.models()["judge"].base_url
    assert promotion(config, None, snapshot=True).obstacles == ()


@pytest.mark.parametrize("trackers", [["wandb", "mlflow"], []])
def test_trackers_are_written_once_and_every_training_has_them(tmp_path: Path, trackers: list[str]) -> None:
    config = load_config("fivedoctors", "demo", trackers=trackers)
    style = load_style_config("laptop", labelled=Path("x.json"), trackers=trackers)

    settings = config.stages() | style.stages()
    assert {stage: values["trackers"] for stage, values in settings.items() if "trackers" in values} == dict.fromkeys(
        ("sft", "ppo", "style", "distil"), trackers
    )
    dump_config(config, tmp_path / "config.yaml")
    assert RunConfig.parse(load_yaml(tmp_path / "config.yaml"), "config.yaml") == config


@pytest.mark.parametrize("profile", ["../chengla/gpt", str(CONFIGS / "chengla" / "gpt.yaml")])
def test_another_tenants_profile_is_not_taken_for_ones_own(profile: str) -> None:
    with pytest.raises(ConfigError, match="has the settings of chengla, and fivedoctors was asked for"):
        load_config("fivedoctors", profile)


def test_a_training_given_in_place_of_the_profiles_own_is_the_one_that_counts() -> None:
    own_config, other = load_config("fivedoctors", "gpt"), load_config("fivedoctors", "gpt", training="a100x8-full")

    assert (own_config.training, own_config.sft.tuner, own_config.machines()["sft"].gpus) == ("a100x4", "lora", 4)
    assert (other.training, other.sft.tuner, other.machines()["sft"].gpus) == ("a100x8-full", "full", 8)
    assert other.machines()["sft"].pod.memory > own_config.machines()["sft"].pod.memory


def test_no_stage_is_told_a_null_that_would_be_lost_on_the_way() -> None:
    """KFP passes no null: a None in a stage's settings must be its default."""
    config = load_config("fivedoctors", "demo")

    for name, values in config.stages().items():
        rest = {
            "validate": config.validate_, "gate": config.evaluate.gate,
            "register": with_base_name(config.register_, config.base),
        }  # fmt: skip
        model = rest.get(name) or getattr(config, name)
        assert type(model).model_validate(values) == model


def idle_settings(values: dict[str, Any], model: Any, where: str = "") -> list[str]:
    """Settings of a file that repeat their default."""
    result = []
    if isinstance(model, dict):  # by names that the file chooses, such as stages; a policy's words are no settings
        inner = [(key, value) for key, value in values.items() if isinstance(value, dict)]
        return [idle for key, value in inner for idle in idle_settings(value, model[key], f"{where}{key}.")]
    fields = {field.alias or name: (name, field) for name, field in type(model).model_fields.items()}
    for key, value in values.items():
        name, field = fields[key]
        if isinstance(value, dict):
            result += idle_settings(value, getattr(model, name), f"{where}{key}.")
        elif not field.is_required() and getattr(model, name) == field.default:
            result.append(where + key)
    return result


def test_a_release_is_named_by_its_tenant_and_its_base_by_no_path_of_a_machine(tmp_path: Path) -> None:
    config = load_config("fivedoctors", "gpt")
    local = config.base.model_copy(update={"model": str(tmp_path / "Qwen3-32B")})

    assert config.register_.name == "fivedoctors/rewriter"
    assert with_base_name(config.register_, config.base).base == "Qwen/Qwen3-32B"
    assert with_base_name(config.register_, local).base == "Qwen3-32B"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"validate": {"quality_treshold": 0.4}}, "validate.quality_treshold: there is no such setting"),
        ({"validate": {"quality_threshold": 1.5}}, "validate.quality_threshold"),
        ({"evaluate": {"gpu_hour_price": 0}}, "evaluate.gpu_hour_price"),
        ({"retrieval": {"top_k": 5}}, "retrieval.top_k"),
        ({"validate": {"retrieval": {"top_k": 20}}}, "validate.retrieval: a run has one retrieval"),
        ({"gateway": {"budget": 0}}, "gateway.budget"),
        ({"tenant_id": "Five Doctors"}, "tenant_id"),
        ({"cluster": {"pods": {"stf": {"cpu": 4}}}}, "cluster.pods: no stage stf"),
        ({"cluster": {"pods": {"sft": {"gpus": 4}}}}, "cluster.pods.sft.gpus: there is no such setting"),
        ({"deploy": {"namespace": "qinglan"}}, "^profile: deploy: no store of releases"),
        ({"trackers": "wandb"}, "trackers"),
        ({"ppo": {"hardware": {"per_node": 3}}}, "^profile: ppo: batch 64"),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, Any], message: str) -> None:
    base = {"tenant_id": "fivedoctors", **load_yaml(CONFIGS / "fivedoctors/demo.yaml")}

    with pytest.raises(ConfigError, match=message):
        RunConfig.parse({**base, **values}, "profile")


def test_every_setting_says_what_it_is_for() -> None:
    silent = []
    pending: list[Any] = [RunConfig]
    while pending:
        model = pending.pop()
        for name, field in model.model_fields.items():
            if hasattr(field.annotation, "model_fields"):
                pending.append(field.annotation)
            if not field.description:
                silent.append(f"{model.__name__}.{name}")
    assert silent == []


@pytest.mark.parametrize("training", ["one-gpu-24", "a100x4"])
def test_a_profiles_nodes_replace_those_of_its_training_file(training: str) -> None:
    """Kubernetes requires all labels of a selector: with the file's label beside the profile's no node matches."""
    cluster = {"gpu_nodes": {"pool": "training"}}

    assert load_config("fivedoctors", "gpt", training=training, cluster=cluster).cluster.gpu_nodes == {
        "pool": "training"
    }
