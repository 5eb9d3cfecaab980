"""The variables from which ms-swift makes its torchrun command."""

from collections.abc import Mapping

from qinglan.jobs.inside.node_info import WORLD_SIZE_VARIABLE, NodeInfo, without_operator_variables


def torchrun_environment(environment: Mapping[str, str], where: NodeInfo) -> dict[str, str]:
    """This environment, with the node's place said as ms-swift reads it and in no other way."""
    joined = {"NPROC_PER_NODE": str(where.per_node), WORLD_SIZE_VARIABLE: str(where.nodes * where.per_node)}
    if where.nodes > 1:
        joined |= {"NNODES": str(where.nodes), "NODE_RANK": str(where.rank)}
        joined |= {"MASTER_ADDR": where.head, "MASTER_PORT": str(where.port)}
    return without_operator_variables(environment) | joined
