"""The thread, from a spreadsheet to a verdict: each stage in order, and the artifacts it takes.

Everything is wired by name: what a stage makes is taken by every later stage that names it here.
"""

THREAD: dict[str, tuple[str, ...]] = {
    "generate": ("questions",),
    "validate": ("rewrites", "knowledge_base"),
    "convert": ("validated",),
    "base": ("knowledge_base", "prompts"),
    "sft": ("base_model", "chats"),
    "ppo": ("sft_model", "prompts"),
    "evaluate": ("locked_test", "chats", "prompts", "sft_model", "rl_model", "sft_log", "ppo_log"),
    "gate": ("evaluation",),
    "candidate": ("evaluation", "rl_model"),
}

STAGES = tuple(THREAD)
GIVEN = ("questions", "knowledge_base")
"""Artifacts that no stage makes."""

ASKS_THE_GATEWAY = frozenset({"generate", "validate", "ppo", "evaluate"})
LAST = "candidate"
BEHIND_THE_GATE = frozenset({"candidate"})
"""Only what the gate promotes gets there."""


def stages_until(last: str) -> tuple[str, ...]:
    return STAGES[: STAGES.index(last) + 1]
