"""Memory of the evaluation on a GPU: one student at a time, behind a vLLM on one card."""

from qinglan.sizing.ledger import Phase
from qinglan.sizing.shape import ModelShape
from qinglan.sizing.vllm import VllmSettings, least_phase

SETTINGS = VllmSettings(max_model_len=2048)
"""vLLM's settings with a merged model."""


def card_phases(shape: ModelShape) -> tuple[Phase, ...]:
    return (least_phase(shape, SETTINGS),)
