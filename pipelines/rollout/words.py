"""A person's word to a rollout: what is written for it, what is said of it, or why it cannot be given."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from pipelines.rollout.shown import Shown
from qinglan.errors import ConfigError

Word = Literal["pause", "resume", "promote", "abort"]
BACK = "it is on its way back to the stable model"


class Change(NamedTuple):
    """`spec` is empty where nothing is to be changed."""

    spec: Mapping[str, Any]
    said: str


def spoken(word: Word, one: Shown) -> Change:
    """A ConfigError where it would mean nothing, or contradicts what was said before."""
    if one.done:
        raise ConfigError(
            f"{one.name} has ended {one.state.outcome}: there is nothing to {word}. `qinglan rollout start` begins "
            "another."
        )
    if one.state.phase == "Rollback" and word != "abort":
        raise ConfigError(f"{one.name}: {BACK} ({'; '.join(one.state.reasons)}), and nobody can {word} that.")
    change = SPOKEN[word](one)
    return change._replace(said=f"{one.name}: {change.said}")


def seen_by(one: Shown) -> str:
    return f"The controller of {one.namespace} reads it at its next look."


def _pause(one: Shown) -> Change:
    if one.spec.abort:
        raise ConfigError(f"{one.name}: abort was said; a pause would change nothing, since {BACK}.")
    if one.spec.paused:
        return Change({}, "paused already. Nothing was changed.")
    return Change(
        {"paused": True},
        f"paused at {one.state.percent} %. The canary is given nothing more, and harm still takes it back. "
        f"{seen_by(one)}",
    )


def _resume(one: Shown) -> Change:
    if not one.spec.paused:
        return Change({}, "not paused. Nothing was changed.")
    return Change({"paused": False}, f"goes on from {one.state.percent} %. {seen_by(one)}")


def _promote(one: Shown) -> Change:
    if one.spec.abort:
        raise ConfigError(
            f"{one.name}: abort was said, and contradicts promote. When it has ended, `qinglan rollout start` begins "
            "another."
        )
    if one.spec.promote:
        return Change({}, "promote was said already. Nothing was changed.")
    held = " It is paused: `qinglan rollout resume` lets it act." if one.spec.paused else ""
    return Change(
        {"promote": True},
        f"gets all of the traffic as soon as its pods are ready, whatever the evidence says.{held} {seen_by(one)}",
    )


def _abort(one: Shown) -> Change:
    """Always possible, and final: who aborts is not made to take back a promote first."""
    if one.spec.abort:
        return Change({}, "abort was said already. Nothing was changed.")
    if one.state.phase == "Rollback":
        return Change({}, f"{BACK} already. Nothing was changed.")
    instead = " That takes back the promote." if one.spec.promote else ""
    return Change(
        {"abort": True, "promote": False}, f"goes back to the stable model, and ends.{instead} {seen_by(one)}"
    )


SPOKEN: Mapping[Word, Callable[[Shown], Change]] = {
    "pause": _pause,
    "resume": _resume,
    "promote": _promote,
    "abort": _abort,
}
