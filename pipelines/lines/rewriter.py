"""The rewriter's line: from a spreadsheet of questions to a release of a query rewriter.

questions, knowledge base
  -> generate -> validate -> label         rewrites, and labels of passages for rows without gold
  -> convert -> augment                    SFT rows, PPO rows, locked test; further rows by the teacher
  -> base -> sft -> ppo                    a model of the student
  -> evaluate -> gate -> register          a verdict on the locked test; what passes becomes a signed release
  -> deploy                                if the profile says so, a ModelRollout of the release
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from components.data.augment.config import AugmentConfig
from components.data.convert.config import ConvertConfig
from components.data.generate.config import GenerateConfig
from components.data.label.config import LabelConfig
from components.data.validate.config import ValidateConfig
from components.evaluation.rewriter.config import EvaluateConfig
from components.release.deploy.config import DeployConfig
from components.release.register.config import RegisterConfig
from components.training.base.config import BaseConfig
from components.training.ppo.config import PpoConfig
from components.training.sft.config import SftConfig
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
from qinglan.config import Config, Name, merge_settings
from qinglan.llm.config import GatewayConfig
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.splits import SplitConfig


class StandIns(Config):
    """Stand-ins that a local run starts on this machine for services that it cannot reach."""

    teacher: bool = False
    """True starts a stand-in teacher and judge, which is free, to try the pipeline. The trained model is of no use,
    and is released only if `register.allow_stand_in` is set."""

    teacher_seconds: float = Field(default=0.0, ge=0)
    """Seconds that the stand-in teacher takes to answer."""

    rag: bool = False
    """True starts this project's RAG service on the run's knowledge base."""


class LoopbackConfig(Config):
    """Settings of the rollout on this machine with simulated users."""

    requests_a_second: float = Field(gt=0)
    """Requests per second by the simulated users; this machine also runs two model servers and the RAG service."""

    rollout: dict[str, Any]
    """Rollout policy, with the fields of a ModelRollout's spec."""


def sft_gpus(config: "RunConfig") -> int:
    return config.sft.gpus if config.sft.device == "cuda" else 0


def ppo_gpus(config: "RunConfig") -> int:
    return config.ppo.hardware.per_node if config.ppo.hardware.device == "cuda" else 0


def student_gpus(config: "RunConfig") -> int:
    """Return the GPUs of the evaluation: `evaluate.serving_gpus` if the student trains on GPUs, otherwise 0."""
    return config.evaluate.serving_gpus if config.sft.device == "cuda" else 0


class RunConfig(LineConfig):
    """All settings of a run of the rewriter's line."""

    tenant_id: Name
    """Name of the tenant, which is also the folder of the profile."""

    questions: Annotated[Path | None, Input(
        "questions.xlsx", "The spreadsheet (.xlsx), CSV or JSONL of questions, such as s3://bucket/questions.xlsx."
    )] = None  # fmt: skip
    """The spreadsheet, CSV or JSONL of questions; also `--questions`."""

    knowledge_base: Annotated[Path | None, Input(
        "knowledge_base.jsonl",
        "The JSONL that the RAG service serves, such as s3://bucket/knowledge_base.jsonl; answers name its digest.",
    )] = None  # fmt: skip
    """The JSONL that the RAG service serves, or a folder of <tenant>.jsonl; also `--knowledge-base`."""

    stand_ins: StandIns = StandIns()
    """Services that a run on this machine starts itself."""

    gateway: GatewayConfig
    """The paid models, the RAG service, limits and budget."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Settings of every retrieval, the same in all stages, so that hits can be compared."""

    generate: Annotated[GenerateConfig, Stage(
        inputs=("questions",), gateway=True, required=("questions", "journal", "prices", "prompt *"),
        outputs={
            "rewrites": Output("rewrites.jsonl", "Each question with the teacher's rewrite."),
            "rewrites_table": Output("rewrites.xlsx", "The rewrites as a spreadsheet."),
            "generate_quarantine": Output("generate_quarantine.jsonl", "Rows without a rewrite, with the reason."),
        },
    )]  # fmt: skip
    """Settings of the teacher's rewrites."""

    validate_: Annotated[ValidateConfig, Stage(
        inputs=("rewrites", "knowledge_base"), gateway=True,
        required=("rewrites", "knowledge*base*", "journal", "prompt *"),
        outputs={
            "validated": Output("validated.jsonl", "Rewrites with both retrievals."),
            "validated_table": Output("validated.xlsx", "The rows as a spreadsheet."),
            "validate_quarantine": Output("validate_quarantine.jsonl", "Rows without a verdict, with the reason."),
        },
    )] = Field(default=ValidateConfig(), alias="validate")  # fmt: skip
    """Settings of the check of the rewrites by retrieval."""

    label: Annotated[LabelConfig, Stage(
        inputs=("validated",), gateway=True,
        outputs={
            "labels": Output("labels.jsonl", "Judges' labels of rows without gold."),
            "label_sheet": Output("label_sheet.xlsx", "Labels for people to check and correct."),
            "label_holes": Output("label_holes.jsonl", "Rows without a relevant passage."),
            "label_report": Output("label_report.json", "Agreement of the judges."),
        },
    )] = LabelConfig()  # fmt: skip
    """Settings of the labels by judges; no judge is called if every row has gold."""

    cross_fit: int = Field(default=0, ge=0, le=20)
    """Number of folds for cross-fitting, or 0 for none. `qinglan run` cross-fits a sheet whose locked test would have
    fewer labelled rows than `evaluate.gate.rows`: it trains one more model for each fold, and each row is then
    rewritten by the model that did not learn from it. A run on a cluster always locks a test away instead."""

    convert: Annotated[ConvertConfig, Stage(
        inputs=("validated", "labels"), required=(),
        outputs={
            "chats": Output("sft", "Chat rows for SFT: train and dev."),
            "prompts": Output("ppo", "Prompts for PPO, as parquet: train and dev."),
            "locked_test": Output("locked_test.jsonl", "The rows that no training sees."),
            "left_out": Output("left_out.jsonl", "Rows in no split, with the reason."),
        },
    )] = ConvertConfig()  # fmt: skip
    """Settings of the splits and the training rows."""

    augment: Annotated[AugmentConfig, Stage(
        inputs=("chats", "prompts", "locked_test", "knowledge_base"), gateway=True,
        outputs={
            "augmented_chats": Output("augmented_sft", "Chat rows with further ones, and without."),
            "augmented_prompts": Output("augmented_ppo", "The prompts, and questions from passages."),
            "augment_left_out": Output("augment_left_out.jsonl", "Further answers of no use."),
            "augment_report": Output("augment_report.json", "Counts of the further rows, by reason."),
        },
    )] = AugmentConfig()  # fmt: skip
    """Settings of further training rows by the teacher."""

    training: Name = "a100x4"
    """Name of a file in configs/training, which sets the machine that trains and the settings that depend on it."""

    base: Annotated[BaseConfig, Stage(
        inputs=("knowledge_base", "prompts"), outputs=BASE_OUTPUTS, resumes=True, required=(),
        base_weights=base_from_hub,
    )] = BaseConfig()  # fmt: skip
    """The model that training starts from."""

    # Not cached: a training that launches a job finds finished work by its own key, which covers more than KFP's.
    sft: Annotated[SftConfig, Stage(
        inputs=("base_model", "augmented_chats"), gateway=True, cached=False, resumes=True,
        required=("base_model", "*chats"), gpus=sft_gpus, base_weights=base_from_hub,
        outputs={
            "sft_model": Output("sft_model", "The student after SFT."),
            "sft_log": Output("sft_log", "The training's figures by step."),
            "sft_curve": Output("sft_curve.html", "The training's curves as a page."),
        },
    )] = SftConfig()  # fmt: skip
    """Settings of SFT, in which the student learns the teacher's rewrites."""

    ppo: Annotated[PpoConfig, Stage(
        inputs=("sft_model", "augmented_prompts"), gateway=True, resumes=True, gpus=ppo_gpus,
        base_weights=lambda config: bool(config.ppo.critic_model),
        required=("sft_model", "*prompts", "journal", "prompt *", "reward"),
        outputs={
            "rl_model": Output("rl_model", "The student after PPO."),
            "ppo_log": Output("ppo_log", "The training's figures by step."),
            "ppo_curve": Output("ppo_curve.html", "The training's curves as a page."),
        },
    )] = PpoConfig()  # fmt: skip
    """Settings of PPO, in which the student learns from rewards."""

    evaluate: Annotated[
        EvaluateConfig,
        Stage(
            inputs=(
                "locked_test", "augmented_chats", "augmented_prompts", "sft_model", "rl_model", "sft_log", "ppo_log",
            ),
            outputs=EVALUATION_OUTPUTS, gateway=True, gpus=student_gpus,
            required=("locked_test", "rl_model", "journal", "prompt *"),
        ),
        Stage(name="gate", part="gate", inputs=("evaluation",), required=("evaluation",)),
    ] = EvaluateConfig()  # fmt: skip
    """Settings of the evaluation on the locked test, and of the gate."""

    register_: Annotated[RegisterConfig, Stage(
        inputs=("evaluation", "rl_model", "report"), outputs=RELEASE_OUTPUTS, cached=False, behind_gate=True
    )] = Field(default=RegisterConfig(name="tenant/rewriter"), alias="register")  # fmt: skip
    """Settings of the release. Its name is <tenant>/rewriter if a profile gives none."""

    deploy: Annotated[DeployConfig | None, DEPLOY] = None
    """Place and policy of the rollout of a promoted model. Without it, a run ends with the release."""

    loopback: LoopbackConfig | None = None
    """Settings of the rollout that `qinglan demo` makes on this machine."""

    cluster: ClusterConfig = ClusterConfig()
    """Pods, GPUs and volumes of the steps on a cluster, from the file that `training` names."""

    @model_validator(mode="before")
    @classmethod
    def _one_tenant(cls, values: Any) -> Any:
        """Copy the tenant into the settings of the stages, so that a profile names it once."""
        if isinstance(values, dict) and "tenant_id" in values:
            tenant = values["tenant_id"]
            values = {**values, "generate": {"tenant_id": tenant, **(values.get("generate") or {})}}
            values = merge_settings(values, {"augment": {"tenant_id": tenant}})
            values = with_release_name(values, f"{tenant}/rewriter", {"deploy": {}})
        return values

    @model_validator(mode="before")
    @classmethod
    def _one_retrieval(cls, values: Any) -> Any:
        """Copy the retrieval settings into the stages that retrieve, so that a profile has them once."""
        if not isinstance(values, dict):
            return values
        shared = {"retrieval": values.get("retrieval") or {}}
        copies = dict.fromkeys(("validate", "label", "augment", "evaluate"), shared)
        return merge_settings(values, {**copies, "ppo": {"reward": shared}})

    @model_validator(mode="before")
    @classmethod
    def _one_division(cls, values: Any) -> Any:
        """Copy the split settings from `convert` to `validate`, which leaves the test out of its figures."""
        convert = values.get("convert") if isinstance(values, dict) else None
        if not isinstance(convert, dict):
            return values
        splits = {name: convert[name] for name in SplitConfig.model_fields if name in convert}
        return merge_settings(values, {"validate": {"splits": splits}})

    @model_validator(mode="before")
    @classmethod
    def _one_stand_in(cls, values: Any) -> Any:
        """Mark the evaluation and the release if a stand-in teacher is used, so that report and release say so."""
        stand_ins = values.get("stand_ins") if isinstance(values, dict) else None
        if not isinstance(stand_ins, dict) or not stand_ins.get("teacher"):
            return values
        marked = {"stand_in_teacher": True}
        return merge_settings(values, {"evaluate": marked, "register": marked})

    @model_validator(mode="before")
    @classmethod
    def _one_critic(cls, values: Any) -> Any:
        """Copy the critic's name to the base stage, which checks its weights too."""
        ppo, base = (values.get("ppo"), values.get("base", {})) if isinstance(values, dict) else (None, None)
        if not isinstance(ppo, dict) or not isinstance(base, dict) or not ppo.get("critic_model"):
            return values
        return {**values, "base": {**base, "critic": ppo["critic_model"]}}

    @model_validator(mode="after")
    def _folds_to_learn_from(self) -> Self:
        if self.cross_fit == 1:
            raise ValueError("cross_fit: one fold leaves nothing to learn from; take 5, or 0 for none")
        return self

    @model_validator(mode="after")
    def _adapter_of_the_base(self) -> Self:
        """Refuse `deploy.adapter` if SFT or PPO trains all weights: then no adapter of the base is left to serve."""
        trains_all = {"sft.tuner": self.sft.tuner == "full", "ppo.lora.rank": not self.ppo.lora.rank}
        whole = [setting for setting, full in trains_all.items() if full]
        if self.deploy and self.deploy.adapter and whole:
            raise ValueError(
                f"deploy.adapter: by {whole[0]} all weights are trained, so that no adapter of the base is left to "
                "serve. Deploy merged weights, deploy: {runtime: qinglan-rewriter-vllm-full, namespace: ...}, or "
                "train adapters in both."
            )
        return self

    @model_validator(mode="after")
    def _release_of_its_tenant(self) -> Self:
        if "register_" in self.model_fields_set and self.register_.name.partition("/")[0] != self.tenant_id:
            raise ValueError(
                f"register.name: {self.register_.name} is no release of {self.tenant_id}; take {self.tenant_id}/..."
            )
        return self

    @model_validator(mode="after")
    def _no_other_retrieval(self) -> Self:
        copies = {
            "validate": self.validate_.retrieval, "label": self.label.retrieval, "augment": self.augment.retrieval,
            "ppo.reward": self.ppo.reward.retrieval, "evaluate": self.evaluate.retrieval,
        }  # fmt: skip
        for stage, retrieval in copies.items():
            if retrieval != self.retrieval:
                raise ValueError(f"{stage}.retrieval: a run has one retrieval; set `retrieval` alone")
        return self

    @property
    def pays(self) -> bool:
        return not self.stand_ins.teacher

    @property
    def trains_sft_twice(self) -> bool:
        """True if SFT trains both with the teacher's further rows and without them, and dev decides."""
        return self.augment.asks and self.sft.compare_further_rows


REWRITER = Line(
    "rewriter",
    RunConfig,
    last="register",
    about="From a spreadsheet of questions to a rewriter.",
    rerun_note="what was paid for is in the journal and costs nothing.",
)
