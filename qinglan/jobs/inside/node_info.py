"""Read the rank of this pod in its job from training-operator's variables, and check them against the settings."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from qinglan.errors import ConfigError

WORLD_SIZE_VARIABLE = "QINGLAN_WORLD_SIZE"
"""Environment variable with the number of processes that must train together. The training checks this number
(components/training/sft/plugin/together.py)."""

OPERATOR_REQUIRED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
OPERATOR_VARIABLES = (
    *OPERATOR_REQUIRED, "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT",
)  # fmt: skip
POD = re.compile(r"(.+)-(?:master|worker)-\d+")
"""Pattern of the pod names that training-operator uses; a pod's host name is the same."""


class NodeInfo(NamedTuple):
    rank: int
    """Rank of the node, not of a process."""

    nodes: int
    per_node: int
    head: str
    """Host name of rank 0, which resolves to its pod."""

    port: int
    job: str = ""

    def pod(self, rank: int) -> str:
        """Return the name that training-operator gives the pod of this rank."""
        if not self.job:
            return f"node {rank}"
        return f"{self.job}-worker-{rank - 1}" if rank else f"{self.job}-master-0"


def read_node_info(environment: Mapping[str, str], nodes: int, per_node: int) -> NodeInfo:
    """Read this pod's rank. Raises a ConfigError if the environment does not match the job's settings."""
    if nodes == 1 and "RANK" not in environment:
        return NodeInfo(0, 1, per_node, "127.0.0.1", 0)
    if missing := [name for name in OPERATOR_REQUIRED if not environment.get(name)]:
        raise ConfigError(
            f"This pod cannot know its place among {nodes} nodes: {', '.join(missing)} not set. training-operator "
            f"sets them in the pods of a PyTorchJob; run it as one, with nprocPerNode {per_node}."
        )
    if odd := environment_mismatches(environment, nodes, per_node):
        raise ConfigError(
            f"{nodes} nodes with {per_node} processes each were asked for, and this pod's environment says otherwise "
            f"({'; '.join(odd)}): training would not be one. The PyTorchJob needs 1 Master, {nodes - 1} Workers and "
            f"nprocPerNode {per_node}."
        )
    head, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    named = POD.fullmatch(environment.get("HOSTNAME", "")) or POD.fullmatch(head)
    return NodeInfo(int(environment["RANK"]), nodes, per_node, head, port, named[1] if named else "")


def environment_mismatches(environment: Mapping[str, str], nodes: int, per_node: int) -> list[str]:
    """List the environment variables that differ from the job's settings, as texts for an error message."""
    rank = environment["RANK"]
    expected = {
        "WORLD_SIZE": nodes * per_node, WORLD_SIZE_VARIABLE: nodes * per_node,
        "PET_NNODES": nodes, "NNODES": nodes,
        "PET_NPROC_PER_NODE": per_node, "NPROC_PER_NODE": per_node,
        "PET_NODE_RANK": rank, "NODE_RANK": rank,
    }  # fmt: skip
    mismatches = [
        f"{name}={environment[name]} instead of {value}"
        for name, value in expected.items()
        if name in environment and environment[name] != str(value)
    ]
    if not rank.isdecimal() or int(rank) >= nodes:
        mismatches.append(f"RANK={rank} is no rank of {nodes} nodes")
    if not environment["MASTER_PORT"].isdecimal():
        mismatches.append(f"MASTER_PORT={environment['MASTER_PORT']} is no port")
    return mismatches


def without_operator_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Copy the environment without training-operator's variables.

    Its variable RANK is the rank of a node, but programs would read it as the rank of a process.
    """
    return {name: value for name, value in environment.items() if name not in OPERATOR_VARIABLES}


def torchrun_environment(environment: Mapping[str, str], where: NodeInfo) -> dict[str, str]:
    """Build the environment from which ms-swift makes its torchrun command, without training-operator's variables."""
    joined = {"NPROC_PER_NODE": str(where.per_node), WORLD_SIZE_VARIABLE: str(where.nodes * where.per_node)}
    if where.nodes > 1:
        joined |= {"NNODES": str(where.nodes), "NODE_RANK": str(where.rank)}
        joined |= {"MASTER_ADDR": where.head, "MASTER_PORT": str(where.port)}
    return without_operator_variables(environment) | joined
