"""Memory of the evaluation on GPUs: one student at a time, behind a vLLM on as many cards as serve it."""

from components.evaluation.rewriter.config import EvaluateConfig
from qinglan.rewriter.engine import engine_options
from qinglan.sizing.ledger import Phase
from qinglan.sizing.shape import ModelShape
from qinglan.sizing.vllm import VllmSettings, least_phase, settings_of_options


def engine_settings(config: EvaluateConfig) -> VllmSettings:
    """Settings of the vLLM that the evaluation starts with a merged model."""
    return settings_of_options([*engine_options("rewriter", gpus=config.serving_gpus), *config.vllm_options])


def card_phases(config: EvaluateConfig, shape: ModelShape) -> tuple[Phase, ...]:
    """Bytes of its share of the card."""
    return (least_phase(shape, engine_settings(config)),)
