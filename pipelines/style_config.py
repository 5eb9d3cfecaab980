"""A style run's configuration: defaults in the stages, differences in configs/style/<profile>.yaml."""

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from components.data.style.config import PrepareStyleConfig
from components.evaluation.style.config import EvaluateStyleConfig
from components.release.deploy.config import DeployConfig
from components.release.register.config import RegisterConfig
from components.training.base.config import BaseConfig
from components.training.style.config import DistilConfig, StyleConfig
from pipelines.cluster_resources import ClusterConfig, Machine, check_pod_stages, stage_machines
from pipelines.config import STYLES, deploy_defaults, merge_settings, with_base_name
from pipelines.stage_lines import STYLE
from qinglan.config import Config, load_yaml
from qinglan.errors import ConfigError
from qinglan.style.labels import read_labels

NAME = "house/style"
DEPLOY_DEFAULTS = {
    "service": "style", "runtime": "qinglan-style", "format": "qinglan-style",
    "rollout": {"checks": [{"name": "errors", "margin": 0.01}, {"name": "slow", "margin": 0.05, "seconds": 0.25}]},
}  # fmt: skip
"""Where a profile says no more than that it deploys: a style model has no fallbacks, and searches nothing."""


class StyleRunConfig(Config):
    """Everything that one run of the style line is told."""

    labelled: Path
    """The labelled answers: the plan's JSON, .jsonl, .xlsx, or a folder with unlabelled texts beside them."""

    labels: Path | None = None
    """A mapping file of labels; without one the plan's five."""

    prepare: PrepareStyleConfig = PrepareStyleConfig()
    """Splits."""

    base: BaseConfig
    """The model that training starts from: a profile names it."""

    style: StyleConfig = StyleConfig()
    """The classifier."""

    evaluate: EvaluateStyleConfig = EvaluateStyleConfig()
    """The locked test, and the gate."""

    register_: RegisterConfig = Field(default=RegisterConfig(name=NAME), alias="register")
    """The release. Its name is house/style, where a profile gives none."""

    distil: DistilConfig = DistilConfig()
    """The smaller one."""

    deploy: DeployConfig | None = None
    """Where what the gate promotes is rolled out. Without it a run ends with the smaller model."""

    cluster: ClusterConfig = ClusterConfig()
    """What its steps ask of a cluster."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """A profile that names a store alone need not repeat the name."""
        if isinstance(values, dict) and isinstance(values.get("register"), dict):
            values = {**values, "register": {"name": NAME, **values["register"]}}
        if isinstance(values, dict) and isinstance(deploy := values.get("deploy"), dict):
            values = {
                **values,
                "deploy": {**DEPLOY_DEFAULTS, **deploy_defaults(values.get("register", {"name": NAME})), **deploy},
            }
        return values

    @model_validator(mode="after")
    def _known_pods(self) -> Self:
        check_pod_stages(STYLE, self.cluster)
        return self

    def machines(self) -> dict[str, Machine]:
        """What each stage asks of a cluster: one GPU where its model is trained on one, and where that is judged."""
        trained = ("style", "distil")
        gpus = {stage: 1 for stage in trained if getattr(self, stage).device == "cuda"}
        if "style" in gpus:
            gpus["evaluate"] = 1
        return stage_machines(STYLE, self.cluster, gpus)

    def stages(self) -> dict[str, dict[str, Any]]:
        """Each stage's settings as plain data, as the graph takes them."""
        settings = {
            "prepare": self.prepare, "base": self.base, "style": self.style, "evaluate": self.evaluate,
            "gate": self.evaluate.gate, "register": with_base_name(self.register_, self.base), "distil": self.distil,
        }  # fmt: skip
        if self.deploy:
            settings["deploy"] = self.deploy
        # KFP passes no null: in a stage's settings None is always the default.
        return {name: model.model_dump(mode="json", exclude_none=True) for name, model in settings.items()}


def load_style_config(profile: str, **given: Any) -> StyleRunConfig:
    """A profile, with what the command line gave on top; the labels are read, so that a cluster needs no file."""
    path = Path(profile) if profile.endswith(".yaml") else STYLES / f"{profile}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(one.stem for one in STYLES.glob("*.yaml")))
        raise ConfigError(f"--profile {profile}: no such profile. There are: {known}, or a path that ends in .yaml.")
    values = merge_settings(load_yaml(path), {name: value for name, value in given.items() if value is not None})
    if labels := values.get("labels"):
        found = [one.model_dump() for one in read_labels(Path(labels)).labels]
        values = merge_settings(values, {"prepare": {"labels": found}})
    return StyleRunConfig.parse(values, str(path))
