"""The graph of the style model; laptop and cluster run this same function.

labelled answers
  -> prepare -> base -> style              splits; a classifier over as many labels as the data has
  -> evaluate -> gate                      a verdict on the locked test, beside a bag of characters
  -> register                              what passes becomes a signed release
  -> distil                                it teaches a smaller one, with int8 weights for a CPU

style_policy, in which what passes rewards a responder that learns a manner, is run alone, by name.
"""

from collections.abc import Sequence
from typing import Any

from kfp import dsl

from components.data.style.component import prepare
from components.evaluation.style.component import evaluate_style, gate_style
from components.release.register.component import register_style
from components.training.base.component import text_base
from components.training.style.component import distil, style
from components.training.style_policy.component import style_policy
from pipelines.graph import A100, Wiring, given, wire
from pipelines.lines import STYLE

WIRING = Wiring(
    STYLE,
    {
        "prepare": prepare, "base": text_base, "style": style, "evaluate": evaluate_style, "gate": gate_style,
        "register": register_style, "distil": distil, "style_policy": style_policy,
    },
    hours={"style": 24, "evaluate": 4, "distil": 24, "style_policy": 24},
    never_cached=frozenset({"base"}),  # where a hub's branch points may be elsewhere tomorrow
)  # fmt: skip


ONE = 1
"""GPU for each stage that takes one. No parameter: kfp 2.17 compiles a count inside a branch that cannot run."""


def until(stages: Sequence[str]) -> Any:
    """The graph of these stages from the line's beginning."""

    @dsl.pipeline(name="qinglan-style")
    def style_line(
        labelled_uri: str,
        prepare_config: dict,  # type: ignore[type-arg]
        base_config: dict,  # type: ignore[type-arg]
        style_config: dict,  # type: ignore[type-arg]
        evaluate_config: dict,  # type: ignore[type-arg]
        gate_config: dict,  # type: ignore[type-arg]
        register_config: dict,  # type: ignore[type-arg]
        distil_config: dict,  # type: ignore[type-arg]
        gpu_nodes: dict = A100,  # type: ignore[type-arg]
    ) -> None:
        """From labelled answers to a release of a style model, and a small one for a CPU.

        Args:
            labelled_uri: The labelled answers in the object store: JSON, .xlsx, or a folder with unlabelled texts.
            prepare_config: PrepareStyleConfig as JSON, with the labels; {} takes the defaults, here and below.
            base_config: BaseConfig as JSON; at least {"model": "..."}.
            style_config: StyleConfig as JSON.
            evaluate_config: EvaluateStyleConfig as JSON.
            gate_config: GateStyleConfig as JSON.
            register_config: RegisterConfig as JSON; at least {"name": "house/style"}.
            distil_config: DistilConfig as JSON.
            gpu_nodes: Labels of the nodes that have the GPUs.
        """
        parameters = {
            "prepare_config": prepare_config, "base_config": base_config, "style_config": style_config,
            "evaluate_config": evaluate_config, "gate_config": gate_config, "register_config": register_config,
            "distil_config": distil_config, "gpu_nodes": gpu_nodes,
        }  # fmt: skip
        wire(WIRING, stages, {"labelled": given(labelled_uri)}, parameters, dict.fromkeys(WIRING.hours, ONE))

    return style_line
