"""A line: the stages from a user's inputs to a release, each declared once, as a field of the line's settings.

    class ToyConfig(LineConfig):
        questions: Annotated[Path | None, Input("questions.xlsx", "The spreadsheet of questions.")] = None
        count: Annotated[CountConfig, Stage(
            ("questions",), {"counts": Output("counts.json", "The number of questions.")}
        )] = CountConfig()

    TOY = Line("toy", ToyConfig, last="count", about="It counts.", rerun_note="nothing is counted twice.")

Stages run in the order of the fields. They are wired by name: an artifact goes to every later stage that names it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, get_args

from pydantic import model_validator

from components.release.deploy.config import DeployConfig
from components.release.register.config import RegisterConfig
from components.training.base.config import BaseConfig
from pipelines.lines.cluster_resources import ClusterConfig, Machine, Pod
from qinglan.config import Config, merge_settings
from qinglan.live.trackers import Tracker
from serving.rollout.spec import policy_problems

LINEAGE = "lineage"
"""An output of every stage: its signed statement, with the statements of all stages before it."""

BEFORE = "before"
"""The input by which a stage takes the lineage of the stage before it."""


@dataclass(frozen=True)
class Input:
    """An artifact that no stage makes; the field holds its path on this machine."""

    file: str
    """Name of the file in a run's files/."""

    about: str
    """Description of the artifact and of the graph's parameter with its address."""


class Output(NamedTuple):
    """An artifact that a stage makes."""

    file: str
    """Name of the file in a run's files/."""

    about: str
    """Description in the graph, as an output and as an input."""


def base_from_hub(config: Any) -> bool:
    """True if the base is a public model; False if it is a tiny one, made from texts."""
    return bool(config.base.source == "hub")


@dataclass(frozen=True)
class Stage:
    """Description of a stage, in the annotation of the field that holds the stage's settings.

    The module of the settings' class is in the stage's folder, with component.py, the KFP component, and README.md,
    the table of settings.
    """

    inputs: tuple[str, ...]
    """Artifacts of earlier stages, and inputs of the line."""

    outputs: Mapping[str, Output] = field(default_factory=dict)
    """Artifacts that the stage makes, by name."""

    name: str = ""
    """Name of the stage; by default the name of the field."""

    part: str = ""
    """Part of the field's settings that belongs to this stage; all of them by default."""

    component: str = ""
    """Name of the function in component.py; by default the stage's name."""

    gateway: bool = False
    """True if the stage calls the run's gateway. Paid models and the knowledge base change, so KFP's cache answers
    for it only if its component takes the gateway's state."""

    cached: bool = True
    """True if KFP's cache may answer for the stage: its outputs depend only on its inputs, and it changes nothing
    outside of the run."""

    resumes: bool = False
    """True for a stage that keeps checkpoints on a volume and resumes from them."""

    behind_gate: bool = False
    """True if the stage runs only if the last gate before it promotes."""

    after: str = ""
    """Name of the stage that this stage follows; if empty, it follows the stage declared before it."""

    required: tuple[str, ...] | None = None
    """Inputs that the stage's statement must name by digest before a release is deployed; * stands for any text.

    None if a release without this stage may be deployed, such as one made before the stage was added.
    """

    gpus: Callable[[Any], int] = lambda config: 0
    """Function that returns the number of GPUs of one node from the line's configuration."""

    base_weights: Callable[[Any], bool] = lambda config: False
    """Function of the line's configuration; True if the stage reads public models from the volume of base weights."""

    @property
    def deploys(self) -> bool:
        """True if the stage brings a release to production; no later stage takes its outputs."""
        return self.config is DeployConfig

    @property
    def registers(self) -> bool:
        """True if the stage makes a release, which it signs with the releaser's key."""
        return self.config is RegisterConfig

    @property
    def judges(self) -> bool:
        """True if the stage judges a model by the locked test; the store lists such models."""
        return "evaluation" in {name.removeprefix("small_") for name in self.outputs}

    @property
    def is_gate(self) -> bool:
        """True if the stage returns a verdict, on which the graph branches."""
        return self.part == "gate"

    attribute: str = ""
    folder: str = ""
    config: type[Config] = Config
    """Name of the settings' field, package of the settings' class, and that class; the line fills these in."""

    def load_component(self) -> Any:
        """Import the KFP component, and with it KFP."""
        from importlib import import_module

        return getattr(import_module(f"{self.folder}.component"), self.component or self.name)


EVALUATION_OUTPUTS = {
    "evaluation": Output("evaluation.json", "All figures, and the verdict."),
    "report": Output("report.html", "The evaluation as a page."),
    "predictions": Output("predictions.jsonl", "The answer of each system to each locked row."),
    "blind_sample": Output("blind_sample.xlsx", "A sheet for people's blind judgement."),
    "blind_key": Output("blind_key.json", "The key of the blind sheet."),
}  # fmt: skip
"""The outputs of every evaluation."""

BASE_OUTPUTS = {"base_model": Output("base_model", "The model that training starts from.")}
RELEASE_OUTPUTS = {"release": Output("release", "The release: all that may serve, signed.")}
"""The outputs of every base stage, and of every release."""

DEPLOY = Stage(inputs=("release",), cached=False, behind_gate=True)
"""The stage that deploys a release, in every line."""


class LineConfig(Config):
    """The configuration of a line's run: settings of each stage, and of the cluster."""

    if TYPE_CHECKING:  # each line declares them, in the order of its own fields
        base: BaseConfig
        register_: RegisterConfig
        deploy: DeployConfig | None
        cluster: ClusterConfig

    trackers: tuple[Tracker, ...] = ("tensorboard",)
    """Trackers that get the figures of all trainings, beside each metrics.jsonl: tensorboard, wandb, mlflow."""

    @model_validator(mode="before")
    @classmethod
    def _one_setting_of_trackers(cls, values: Any) -> Any:
        """Copy the line's `trackers` into the settings of every training; refuse a training that names others."""
        if not isinstance(values, dict) or not isinstance(values.get("trackers", ()), list | tuple):
            return values  # the settings class refuses such values, and says why
        shared = list(values.get("trackers", cls.model_fields["trackers"].default))
        trainings = [name for name, stage in stages_of(cls).items() if "trackers" in stage.config.model_fields]
        for name in trainings:
            settings = values.get(name)
            if isinstance(settings, dict) and list(settings.get("trackers", shared)) != shared:
                raise ValueError(f"{name}.trackers: a run has one setting for all trainings; set `trackers` alone")
        mappings = [name for name in trainings if isinstance(values.get(name, {}), dict)]  # the class refuses others
        return merge_settings(values, {name: {"trackers": shared} for name in mappings})

    @model_validator(mode="after")
    def _known_pods(self) -> Self:
        """Refuse pod settings for a stage that the line lacks, because a misspelt name would have no effect."""
        stages = stages_of(type(self))
        if unknown := sorted(set(self.cluster.pods) - set(stages)):
            raise ValueError(f"cluster.pods: no stage {', '.join(unknown)}. There are: {', '.join(stages)}")
        return self

    @model_validator(mode="after")
    def _policies_within_limits(self) -> Self:
        """Refuse a rollout policy now that would otherwise be refused only at the end of the run."""
        for name in ("deploy", "loopback"):
            settings = getattr(self, name, None)
            if settings is not None and (problems := policy_problems(settings.rollout)):
                raise ValueError(f"{name}.rollout: {'; '.join(problems)}")
        return self

    def machines(self) -> dict[str, Machine]:
        stages, cluster, machines = stages_of(type(self)), self.cluster, {}
        on_gpus = any(stage.gpus(self) for stage in stages.values())
        for name, stage in stages.items():
            gpus = stage.gpus(self)
            nodes = cluster.gpu_nodes if gpus else {}
            scratch = cluster.scratch if on_gpus and stage.resumes else ""
            weights = cluster.base_weights if stage.base_weights(self) else ""
            machines[name] = Machine(cluster.pods.get(name, Pod()), gpus, nodes, scratch, weights)
        return machines

    def stages(self) -> dict[str, dict[str, Any]]:
        config = self.model_copy(update={"register_": with_base_name(self.register_, self.base)})
        settings = {}
        for name, stage in stages_of(type(self)).items():
            field = getattr(config, stage.attribute)
            if field is not None:  # the profile does not leave the stage out
                # KFP passes no null to a component, so None is left out: in a stage's settings None is the default.
                part: Config = getattr(field, stage.part) if stage.part else field
                settings[name] = part.model_dump(mode="json", exclude_none=True)
        return settings


@dataclass(frozen=True)
class Line:
    """A pipeline line, such as the rewriter's, with everything that follows from its stages."""

    name: str
    config: type[LineConfig]
    last: str
    """Last stage of a run on this machine; a stage that deploys runs only by --only."""

    about: str
    """The graph's description on KFP's page."""

    rerun_note: str
    """The reason why a stopped run costs little when it is run again."""

    releases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stages that each release has passed, by the ending of the release's name; empty if the line has one release."""

    @property
    def stages(self) -> Mapping[str, Stage]:
        """The stages in order, by name."""
        return stages_of(self.config)

    @property
    def inputs(self) -> Mapping[str, Input]:
        """Artifacts that no stage makes."""
        fields = self.config.model_fields.items()
        return {name: entry for name, info in fields for entry in info.metadata if isinstance(entry, Input)}

    @property
    def files(self) -> Mapping[str, str]:
        files = {name: item.file for name, item in self.inputs.items()}
        for stage in self.stages.values():
            files |= {name: output.file for name, output in stage.outputs.items()}
        return files | {LINEAGE: LINEAGE}

    @property
    def artifacts(self) -> Mapping[str, str]:
        """The description of each artifact, by name."""
        descriptions = {name: item.about for name, item in self.inputs.items()}
        for stage in self.stages.values():
            descriptions |= {name: output.about for name, output in stage.outputs.items()}
        return descriptions

    @property
    def gateway(self) -> frozenset[str]:
        """The stages that call the run's gateway."""
        return frozenset(name for name, stage in self.stages.items() if stage.gateway)

    @property
    def required(self) -> Mapping[str, Mapping[str, list[str]]]:
        """The stages that a release must have passed, by its name, with the inputs that each must name."""
        required: dict[str, dict[str, list[str]]] = {}
        for suffix, names in (self.releases or {"": tuple(self.stages)}).items():
            stages = {name: self.stages[name].required for name in names}
            required[f"{self.name}{suffix}"] = {name: [*it] for name, it in stages.items() if it is not None}
        return required

    def until(self, last: str) -> tuple[str, ...]:
        """Return the stages of a run on this machine up to `last`, without those that deploy."""
        names = tuple(name for name, stage in self.stages.items() if not stage.deploys)
        return names[: names.index(last) + 1]


@cache
def stages_of(config: type[LineConfig]) -> dict[str, Stage]:
    """Collect the stages that a line's configuration declares, in order, by name."""
    stages: list[Stage] = []
    for attribute, info in config.model_fields.items():
        for entry in info.metadata:
            if isinstance(entry, Stage):
                settings = _settings_class(info.annotation)
                folder = settings.__module__.rpartition(".")[0]
                if entry.part:
                    settings = _settings_class(settings.model_fields[entry.part].annotation)
                name = entry.name or info.alias or attribute
                stages.append(replace(entry, name=name, attribute=attribute, folder=folder, config=settings))
    # Fields are in the order of the stages, except for stages that name the stage that they follow.
    ordered = [stage for stage in stages if not stage.after]
    waiting = [stage for stage in stages if stage.after]
    while waiting:
        names = [stage.name for stage in ordered]
        ready = next(stage for stage in waiting if stage.after in names)
        ordered.insert(names.index(ready.after) + 1, ready)
        waiting.remove(ready)
    return {stage.name: stage for stage in ordered}


def _settings_class(annotation: Any) -> type[Config]:
    kinds: list[type[Config]] = [kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type)]
    return kinds[0]


def with_base_name(release: RegisterConfig, base: BaseConfig) -> RegisterConfig:
    """Add the base model's public name to the release's settings, if they name no base."""
    public = base.model if re.fullmatch(r"[\w.-]+/[\w.-]+", base.model) else Path(base.model).name
    name = public if base.source == "hub" else base.source
    return release if release.base else RegisterConfig.parse({**release.model_dump(), "base": name}, "base.model")


def with_release_name(values: Any, name: str, deploy: Mapping[str, Mapping[str, Any]]) -> Any:
    """Add a name for the release, and defaults for the stages that deploy, to a profile's values.

    `deploy` holds the defaults of each stage that deploys, by the stage's name. The stage takes `name` and `store`
    from the release.
    """
    if not isinstance(values, dict) or not isinstance(values.get("register") or {}, dict):
        return values  # the settings class refuses such values, and says why
    release = {"name": name, **(values.get("register") or {})}
    values = {**values, "register": release}
    for stage, defaults in deploy.items():
        if isinstance(profile := values.get(stage), dict):
            suffix = stage.removeprefix("deploy").replace("_", "-")
            shared = {
                "name": f"{release['name']}{suffix}",
                **({"store": release["store"]} if "store" in release else {}),
            }
            values[stage] = {**defaults, **shared, **profile}
            if not values[stage].get("store"):
                raise ValueError(f"{stage}: no store of releases. Set register.store, such as s3://bucket/prefix.")
    return values
