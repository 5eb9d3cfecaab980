"""The two lines: each stage in order, and the artifacts it takes.

Everything is wired by name: what a stage makes is taken by every later stage that names it here.
"""

from collections.abc import Mapping
from typing import NamedTuple

LINEAGE = "lineage"
"""What every stage makes: its signed statement, and those of all before it."""

BEFORE = "before"
"""What a stage calls the lineage that it takes: that of the stage before it."""


class StageLine(NamedTuple):
    """Stages from what is given to what may serve."""

    name: str
    thread: Mapping[str, tuple[str, ...]]
    """Each stage's artifacts."""

    given: tuple[str, ...]
    """Artifacts that no stage makes."""

    behind_the_gate: frozenset[str]
    """Only what the gate promotes gets there."""

    last: str
    """Where a run ends, and the graph; what follows is run alone."""

    resumes: frozenset[str] = frozenset()
    """They keep on a volume what they have come to, and go on from it."""

    asks_the_gateway: frozenset[str] = frozenset()

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(self.thread)

    def graph(self, deploys: bool) -> tuple[str, ...]:
        """What a compiled graph holds: as far as runs go by themselves, and on to production where that is asked."""
        return self.until(self.last) + (("deploy",) if deploys else ())

    def until(self, last: str) -> tuple[str, ...]:
        return self.stages[: self.stages.index(last) + 1]


REWRITER = StageLine(
    "rewriter",
    {
        "generate": ("questions",),
        "validate": ("rewrites", "knowledge_base"),
        "convert": ("validated",),
        "base": ("knowledge_base", "prompts"),
        "sft": ("base_model", "chats"),
        "ppo": ("sft_model", "prompts"),
        "evaluate": ("locked_test", "chats", "prompts", "sft_model", "rl_model", "sft_log", "ppo_log"),
        "gate": ("evaluation",),
        "register": ("evaluation", "rl_model", "report"),
        "deploy": ("release",),
    },
    given=("questions", "knowledge_base"),
    behind_the_gate=frozenset({"register", "deploy"}),
    last="register",
    resumes=frozenset({"base", "sft", "ppo"}),
    asks_the_gateway=frozenset({"generate", "validate", "ppo", "evaluate"}),
)

STYLE = StageLine(
    "style",
    {
        "prepare": ("labelled",),
        "base": ("style_rows",),
        "style": ("base_model", "style_rows"),
        "evaluate": ("style_rows", "style_model"),
        "gate": ("evaluation",),
        "register": ("evaluation", "style_model", "report"),
        "distil": ("style_model", "style_rows"),
        "deploy": ("release",),
    },
    given=("labelled",),
    behind_the_gate=frozenset({"register", "distil", "deploy"}),
    last="distil",
    resumes=frozenset({"style", "distil"}),
)

LINES = {line.name: line for line in (REWRITER, STYLE)}
