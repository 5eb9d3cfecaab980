"""GPU memory that the evaluation needs: it runs one student at a time with vLLM, on `serving_gpus` cards."""

from components.evaluation.rewriter.config import EvaluateConfig
from qinglan.rewriter.engine import engine_options
from qinglan.sizing.ledger import Phase
from qinglan.sizing.shape import ModelShape
from qinglan.sizing.vllm import VllmSettings, least_phase, settings_of_options


def engine_settings(config: EvaluateConfig) -> VllmSettings:
    """Memory settings of the vLLM that the evaluation starts. It serves a merged model, so there are no adapters."""
    return settings_of_options([*engine_options("rewriter", gpus=config.serving_gpus), *config.vllm_options])


def card_phases(config: EvaluateConfig, shape: ModelShape) -> tuple[Phase, ...]:
    """Return the smallest amount of memory that vLLM needs on each card, as the evaluation's only phase."""
    return (least_phase(shape, engine_settings(config)),)
