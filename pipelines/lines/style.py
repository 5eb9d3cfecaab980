"""The style model's line: from labelled answers to a release of a classifier, and a small one for a CPU.

labelled answers
  -> prepare -> base -> style              splits; a classifier over as many labels as the data has
  -> evaluate -> gate                      a verdict on the locked test, compared with a bag of characters
  -> register -> deploy                    what passes becomes a signed release, and a ModelRollout if the profile
                                           says so
  -> distil                                the classifier teaches a smaller one, with int8 weights for a CPU
  -> evaluate_small -> gate_small          a verdict on these int8 weights, compared with the teacher as well
  -> register_small -> deploy_small        a second release, house/style-small, with a rollout of its own
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from components.data.style.config import PrepareStyleConfig
from components.evaluation.style.config import EvaluateStyleConfig
from components.release.deploy.config import DeployConfig
from components.release.register.config import RegisterConfig
from components.training.base.config import BaseConfig
from components.training.style.config import DistilConfig, StyleConfig
from pipelines.lines.cluster_resources import ClusterConfig
from pipelines.lines.line import (
    BASE_OUTPUTS,
    DEPLOY,
    EVALUATION_OUTPUTS,
    RELEASE_OUTPUTS,
    Input,
    Line,
    LineConfig,
    Output,
    Stage,
    base_from_hub,
    with_release_name,
)

NAME, SMALL = "house/style", "-small"
CHECKS = [{"name": "errors", "margin": 0.01}, {"name": "slow", "margin": 0.05, "seconds": 0.25}]
SERVED = {"format": "qinglan-style", "rollout": {"checks": CHECKS}}
RELEASE_DEFAULTS = {
    "style": {"service": "style", "runtime": "qinglan-style", **SERVED},
    f"style{SMALL}": {"service": f"style{SMALL}", "runtime": "qinglan-style-onnx", **SERVED},
}
"""Default deployment of each release, by its name without the tenant. A style model has no fallbacks and no search,
so its rollout has fewer checks."""

DEPLOY_DEFAULTS = {"deploy": RELEASE_DEFAULTS["style"], "deploy_small": RELEASE_DEFAULTS[f"style{SMALL}"]}

SMALL_EVALUATION_OUTPUTS = {
    f"small_{name}": Output(f"small_{output.file}", f"Of the smaller model: {output.about}")
    for name, output in EVALUATION_OUTPUTS.items()
}


def style_gpus(config: "StyleRunConfig") -> int:
    return 1 if config.style.device == "cuda" else 0


class StyleRunConfig(LineConfig):
    """All settings of a run of the style line."""

    labelled: Annotated[Path, Input(
        "labelled",
        "The labelled answers, such as s3://bucket/style: JSON, .xlsx, or a folder with unlabelled texts.",
    )]  # fmt: skip
    """The labelled answers: the plan's JSON, .jsonl, .xlsx, or a folder with unlabelled texts beside them."""

    labels: Path | None = None
    """Mapping file of labels; by default the five labels of the plan."""

    prepare: Annotated[PrepareStyleConfig, Stage(
        inputs=("labelled",), required=("labelled",),
        outputs={
            "style_rows": Output("style_rows", "The labelled answers in splits, alike ones in the same."),
            "distribution": Output("distribution.html", "How many rows each label has, as a page."),
        },
    )] = PrepareStyleConfig()  # fmt: skip
    """Settings of the splits of the labelled answers."""

    base: Annotated[BaseConfig, Stage(
        inputs=("style_rows",), outputs=BASE_OUTPUTS, component="text_base", required=(),
        base_weights=base_from_hub,
    )]  # fmt: skip
    """Settings of the model that training starts from, which a profile names."""

    style: Annotated[StyleConfig, Stage(
        inputs=("base_model", "style_rows"), resumes=True, required=("base_model", "style_rows"), gpus=style_gpus,
        base_weights=base_from_hub,
        outputs={
            "style_model": Output("style_model", "The classifier."),
            "style_log": Output("style_log", "The training's figures by step."),
            "style_curve": Output("style_curve.html", "The training's curves as a page."),
        },
    )] = StyleConfig()  # fmt: skip
    """Settings of the classifier's training."""

    evaluate: Annotated[
        EvaluateStyleConfig,
        Stage(
            inputs=("style_rows", "style_model"), outputs=EVALUATION_OUTPUTS, component="evaluate_style",
            required=("style_rows", "style_model"), gpus=style_gpus,
        ),
        Stage(
            name="gate", part="gate", inputs=("evaluation",), component="gate_style",
            required=("evaluation",),
        ),
        Stage(
            name="evaluate_small", after="distil", outputs=SMALL_EVALUATION_OUTPUTS, behind_gate=True,
            inputs=("style_rows", "student_model", "evaluation", "predictions"),
            required=("style_rows", "student_model", "predictions"),
        ),
        Stage(
            name="gate_small", after="evaluate_small", part="gate", inputs=("small_evaluation",),
            behind_gate=True, required=("small_evaluation",),
        ),
    ] = EvaluateStyleConfig()  # fmt: skip
    """Settings of the evaluation on the locked test, and of the gate; they hold for both models."""

    register_: Annotated[
        RegisterConfig,
        Stage(
            inputs=("evaluation", "style_model", "report"), outputs=RELEASE_OUTPUTS, cached=False,
            component="register_style", behind_gate=True,
        ),
        Stage(
            name="register_small", after="gate_small", inputs=("small_evaluation", "student_model", "small_report"),
            outputs={"small_release": Output("small_release", "The smaller model's release, signed.")},
            cached=False, behind_gate=True,
        ),
    ] = Field(default=RegisterConfig(name=NAME), alias="register")  # fmt: skip
    """Settings of the releases. The name is house/style if a profile gives none; the smaller model's name ends in
    -small."""

    deploy: Annotated[DeployConfig | None, DEPLOY] = None
    """Place and policy of the rollout of a promoted model. Without it, nothing is rolled out."""

    distil: Annotated[DistilConfig, Stage(
        inputs=("style_model", "style_rows"), resumes=True, behind_gate=True,
        gpus=lambda config: int(config.distil.device == "cuda"),
        required=("style_model", "style_rows"),
        outputs={
            "student_model": Output("student_model", "The smaller classifier, with int8 weights for a CPU."),
            "distil_log": Output("distil_log", "The training's figures by step."),
            "distil_table": Output("distil.json", "Size, speed and accuracy of the classifier and the smaller one."),
        },
    )] = DistilConfig()  # fmt: skip
    """Settings of the smaller classifier's training."""

    deploy_small: Annotated[DeployConfig | None, Stage(
        inputs=("small_release",), cached=False, behind_gate=True,
    )] = None  # fmt: skip
    """Place and policy of the rollout of the smaller model; its runtime serves int8 weights."""

    cluster: ClusterConfig = ClusterConfig()
    """Pods, GPUs and volumes of the steps on a cluster."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """Fill in `register.name`, and the defaults of the deploy stages, if a profile leaves them out."""
        return with_release_name(values, NAME, DEPLOY_DEFAULTS)


STYLE = Line(
    "style",
    StyleRunConfig,
    last="register_small",
    about="From labelled answers to a style model.",
    rerun_note="a training that is finished is not done again.",
    releases={
        "": ("prepare", "base", "style", "evaluate", "gate"),
        SMALL: ("prepare", "base", "style", "distil", "evaluate_small", "gate_small"),
    },
)
