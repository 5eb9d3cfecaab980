"""A run's configuration: defaults here and in the stages, differences in configs/<tenant>/<profile>.yaml.

Where training runs is a file of its own, configs/training/<name>.yaml, which any tenant's profile can name.

The resolved whole is written beside every run as config.yaml.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from components.data.convert.config import ConvertConfig
from components.data.generate.config import GenerateConfig
from components.data.validate.config import ValidateConfig
from components.evaluation.rewriter.config import EvaluateConfig
from components.release.deploy.config import DeployConfig
from components.release.register.config import RegisterConfig
from components.training.base.config import BaseConfig
from components.training.ppo.config import PpoConfig
from components.training.sft.config import SftConfig
from pipelines.cluster_resources import ClusterConfig, Machine, check_pod_stages, stage_machines
from pipelines.stage_lines import REWRITER
from qinglan.config import Config, Fraction, Name, load_yaml
from qinglan.errors import ConfigError
from qinglan.llm.config import GatewayConfig

CONFIGS = Path(__file__).parent / "configs"
TRAINING, STYLES = CONFIGS / "training", CONFIGS / "style"
"""Profiles that are no tenant's."""


class StandIns(Config):
    """What a laptop run starts on loopback in place of what it cannot reach."""

    teacher: bool = False
    """The stand-in teacher and judge, extractive, free of charge."""

    teacher_seconds: float = Field(default=0.0, ge=0)
    """How long the stand-in takes to answer."""

    rag: bool = False
    """This project's RAG service on the run's knowledge base."""


class LoopbackConfig(Config):
    """How a promoted model earns its users on this machine, where they are played."""

    requests_a_second: float = Field(gt=0)
    """What its cores bear, two servers and the RAG service together."""

    supposed: Fraction
    """The share of the stable model's requests that fail a check, as far as the policy's power is told beforehand."""

    rollout: dict[str, Any]
    """The policy, in a ModelRollout's own words."""


class RunConfig(Config):
    """Everything that one run of the rewriter's pipeline is told."""

    tenant_id: Name
    """The folder of the profile names it."""

    questions: Path | None = None
    """The spreadsheet or JSONL of questions; also `--questions`."""

    knowledge_base: Path | None = None
    """The JSONL that the RAG service serves, or a folder of <tenant>.jsonl; also `--knowledge-base`."""

    stand_ins: StandIns = StandIns()
    """What the laptop starts itself."""

    gateway: GatewayConfig
    """The paid models, the RAG service, limits and budget."""

    generate: GenerateConfig
    """The first stage."""

    validate_: ValidateConfig = Field(default=ValidateConfig(), alias="validate")
    """The second stage."""

    convert: ConvertConfig = ConvertConfig()
    """The third stage."""

    training: Name = "a100x4"
    """A file of configs/training: the machine that trains, and what that changes below."""

    base: BaseConfig = BaseConfig()
    """The model that training starts from."""

    sft: SftConfig = SftConfig()
    """The student learns the teacher's rewrites."""

    ppo: PpoConfig = PpoConfig()
    """The student competes with the teacher."""

    evaluate: EvaluateConfig = EvaluateConfig()
    """The locked test, and the gate."""

    register_: RegisterConfig = Field(default=RegisterConfig(name="tenant/rewriter"), alias="register")
    """The release. Its name is the tenant's, <tenant>/rewriter, where a profile gives none."""

    deploy: DeployConfig | None = None
    """Where what the gate promotes is rolled out. Without it a run ends with the release."""

    loopback: LoopbackConfig | None = None
    """How `qinglan demo` rolls out here what the gate promotes."""

    cluster: ClusterConfig = ClusterConfig()
    """What its steps ask of a cluster; the training's file says it."""

    @model_validator(mode="before")
    @classmethod
    def _one_tenant(cls, values: Any) -> Any:
        """The tenant is written once; the stages get it from here."""
        if isinstance(values, dict) and "tenant_id" in values:
            generate = values.get("generate") or {}
            release = {"name": f"{values['tenant_id']}/rewriter", **(values.get("register") or {})}
            values = {**values, "generate": {"tenant_id": values["tenant_id"], **generate}, "register": release}
            if isinstance(deploy := values.get("deploy"), dict):
                values["deploy"] = {**deploy_defaults(release), **deploy}
        return values

    @model_validator(mode="after")
    def _known_pods(self) -> Self:
        check_pod_stages(REWRITER, self.cluster)
        return self

    def machines(self) -> dict[str, Machine]:
        """What each stage asks of a cluster. Students of a size that GPUs train are evaluated on one."""
        gpus: dict[str, int] = {}
        if self.sft.device == "cuda":
            gpus |= {"sft": self.sft.gpus, "evaluate": 1}
        if self.ppo.hardware.device == "cuda":
            gpus["ppo"] = self.ppo.hardware.per_node
        return stage_machines(REWRITER, self.cluster, gpus)

    def stages(self) -> dict[str, dict[str, Any]]:
        """Each stage's settings as plain data, as the graph takes them."""
        settings = {
            "generate": self.generate, "validate": self.validate_, "convert": self.convert, "base": self.base,
            "sft": self.sft, "ppo": self.ppo, "evaluate": self.evaluate, "gate": self.evaluate.gate,
            "register": with_base_name(self.register_, self.base),
        }  # fmt: skip
        if self.deploy:
            settings["deploy"] = self.deploy
        # KFP passes no null: in a stage's settings None is always the default.
        return {name: model.model_dump(mode="json", exclude_none=True) for name, model in settings.items()}

    @property
    def pays(self) -> bool:
        """Whether a run spends money."""
        return not self.stand_ins.teacher


def deploy_defaults(register: Mapping[str, Any]) -> dict[str, Any]:
    """What the deploy stage takes from the register stage, where nothing else is said."""
    return {name: register[name] for name in ("name", "store") if name in register}


def with_base_name(release: RegisterConfig, base: BaseConfig) -> RegisterConfig:
    """The release's settings with the base model's public name, where they have none."""
    public = base.model if re.fullmatch(r"[\w.-]+/[\w.-]+", base.model) else Path(base.model).name
    name = public if base.source == "hub" else base.source
    return release if release.base else RegisterConfig.parse({**release.model_dump(), "base": name}, "base.model")


def profiles() -> list[Path]:
    """Every tenant's profiles."""
    return sorted(path for path in CONFIGS.glob("*/*.yaml") if path.parent not in (TRAINING, STYLES))


def profile_path(tenant: str, profile: str) -> Path:
    """The file of a profile, by name or by path; an unknown one is an error that lists those there are."""
    path = Path(profile) if profile.endswith(".yaml") else CONFIGS / tenant / f"{profile}.yaml"
    if not path.is_file() and profile.endswith(".yaml"):
        raise ConfigError(f"--profile {path}: no such file.")
    if not path.is_file():
        known = ", ".join(f"{p.parent.name}/{p.stem}" for p in profiles())
        raise ConfigError(f"No profile {profile!r} for tenant {tenant!r}. There are: {known}.")
    owner = path.resolve().parent
    if owner.parent == CONFIGS.resolve() and owner.name != tenant:
        raise ConfigError(
            f"--profile {profile}: has the settings of {owner.name}, and {tenant} was asked for. "
            f"Copy it into pipelines/configs/{tenant} and mend what is {tenant}'s own."
        )
    return path


def load_config(tenant: str, profile: str, **given: Any) -> RunConfig:
    """A profile, with what the command line gave on top."""
    path = profile_path(tenant, profile)
    values = load_yaml(path)
    if values.setdefault("tenant_id", tenant) != tenant:
        raise ConfigError(f"{path}: is for tenant {values['tenant_id']!r}, and {tenant!r} was asked for.")
    given = {name: value for name, value in given.items() if value is not None}
    values = merge_settings(values, given)
    values = merge_settings(training_settings(values), values)
    return RunConfig.parse(values, str(path))


def training_settings(values: dict[str, Any]) -> dict[str, Any]:
    """What the file says that a profile names under `training`."""
    name = values.get("training", RunConfig.model_fields["training"].default)
    path = TRAINING / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(one.stem for one in TRAINING.glob("*.yaml")))
        raise ConfigError(f"training: no {name!r} in pipelines/configs/training. There are: {known}.")
    return load_yaml(path)


def merge_settings(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """One mapping laid over another, level by level."""
    out = dict(under)
    for name, value in over.items():
        both = isinstance(value, dict) and isinstance(out.get(name), dict)
        out[name] = merge_settings(out[name], value) if both else value
    return out


def dump_config(config: Config, path: Path) -> None:
    """Write the resolved configuration, every default spelled out."""
    import yaml

    from qinglan.files import atomic_write

    with atomic_write(path) as partial:
        text = yaml.safe_dump(config.model_dump(mode="json", by_alias=True), allow_unicode=True, sort_keys=False)
        partial.write_text(text, encoding="utf-8")
