"""First step of a graph, which belongs to no stage. If its result changes, KFP's cache does not skip the paid
stages."""

from components.image import CPU_IMAGE
from components.step_component import step_component


@step_component(CPU_IMAGE)
def gateway_state(gateway_url: str) -> str:
    """Digest of the gateway's models, prices and knowledge bases, and of how many calls failed."""
    from qinglan.lineage.steps.step_inputs import read_gateway_state

    return read_gateway_state(gateway_url)
