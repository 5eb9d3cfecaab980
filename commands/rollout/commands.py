"""Translate a command to a rollout (pause, resume, promote, abort) into a change of its spec, or refuse it."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from commands.rollout.view import RolloutView
from qinglan.errors import ConfigError

Command = Literal["pause", "resume", "promote", "abort"]
BACK = "it is on its way back to the stable model"


class SpecChange(NamedTuple):
    """The change of the spec, empty if none is needed, and a message for the person."""

    spec: Mapping[str, Any]
    message: str


def change_for_command(word: Command, view: RolloutView) -> SpecChange:
    """Translate a command; ConfigError if it has no effect or contradicts an earlier command."""
    if view.done:
        raise ConfigError(
            f"{view.name} has ended {view.state.outcome}: there is nothing to {word}. `qinglan rollout start` begins "
            "another."
        )
    if view.state.phase == "Rollback" and word != "abort":
        raise ConfigError(f"{view.name}: {BACK} ({'; '.join(view.state.reasons)}), and nobody can {word} that.")
    change = COMMANDS[word](view)
    return change._replace(message=f"{view.name}: {change.message}")


def controller_note(view: RolloutView) -> str:
    return f"The controller of {view.namespace} reads it at its next look."


def _pause(view: RolloutView) -> SpecChange:
    if view.spec.abort:
        raise ConfigError(f"{view.name}: abort was said; a pause would change nothing, since {BACK}.")
    if view.spec.paused:
        return SpecChange({}, "paused already. Nothing was changed.")
    return SpecChange(
        {"paused": True},
        f"paused at {view.state.percent} %. The canary is given nothing more, and harm still takes it back. "
        f"{controller_note(view)}",
    )


def _resume(view: RolloutView) -> SpecChange:
    if not view.spec.paused:
        return SpecChange({}, "not paused. Nothing was changed.")
    return SpecChange({"paused": False}, f"goes on from {view.state.percent} %. {controller_note(view)}")


def _promote(view: RolloutView) -> SpecChange:
    if view.spec.abort:
        raise ConfigError(
            f"{view.name}: abort was said, and contradicts promote. When it has ended, `qinglan rollout start` "
            "begins another."
        )
    if view.spec.promote:
        return SpecChange({}, "promote was said already. Nothing was changed.")
    held = " It is paused: `qinglan rollout resume` lets it act." if view.spec.paused else ""
    return SpecChange(
        {"promote": True},
        f"gets all of the traffic as soon as its pods are ready, whatever the evidence says.{held} "
        f"{controller_note(view)}",
    )


def _abort(view: RolloutView) -> SpecChange:
    """Abort, which is always possible and final, even after a promote command."""
    if view.spec.abort:
        return SpecChange({}, "abort was said already. Nothing was changed.")
    if view.state.phase == "Rollback":
        return SpecChange({}, f"{BACK} already. Nothing was changed.")
    instead = " That takes back the promote." if view.spec.promote else ""
    return SpecChange(
        {"abort": True, "promote": False},
        f"goes back to the stable model, and ends.{instead} {controller_note(view)}",
    )


COMMANDS: Mapping[Command, Callable[[RolloutView], SpecChange]] = {
    "pause": _pause,
    "resume": _resume,
    "promote": _promote,
    "abort": _abort,
}
