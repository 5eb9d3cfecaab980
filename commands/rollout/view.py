"""Views of ModelRollouts for people, computed from the API server's objects; pure functions."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from qinglan.errors import DataError, GateHeldError, QinglanError
from qinglan.kubernetes.model_rollouts import Object, is_under_way, next_rollout, rollouts_of_service
from serving.rollout.canary_analysis import describe_score, missing_evidence
from serving.rollout.decide import BLIND_NOTED_SECONDS
from serving.rollout.sequential import harm_needed, safe_needed
from serving.rollout.spec import CamelCaseConfig, RolloutSpec, default_checks
from serving.rollout.state import State

NOT_BEGUN = "not begun"
SHORT = 12
"""Number of characters of a digest that are displayed."""


class RolloutView(NamedTuple):
    """A parsed ModelRollout."""

    name: str
    namespace: str
    created: str
    begun: bool
    """True once a controller has written a status."""

    spec: RolloutSpec
    state: State
    behind: str = ""
    """Name of the rollout of the same service that must end first; empty if there is none."""

    checks_known: bool = True
    """False if the controller will choose the checks and has not written them yet."""

    @property
    def done(self) -> bool:
        return self.state.phase == "Done"

    @property
    def phase(self) -> str:
        return self.state.phase if self.begun else NOT_BEGUN

    @property
    def release(self) -> str:
        return f"{self.spec.release.name} {self.spec.release.digest[:SHORT]}"


def read_rollout(rollout: Object, rollouts: Iterable[Object] = ()) -> RolloutView:
    """Parse a rollout; `rollouts` are all of its namespace, to find the one that must end first. Raises DataError if
    an incompatible controller wrote the status."""
    meta, status = rollout["metadata"], rollout.get("status") or {}
    where = f"modelrollout {meta['namespace']}/{meta['name']}"
    state = State.parse(_known_fields(State, status), f"{where}, status")
    policy = _known_fields(RolloutSpec, rollout["spec"])
    by_default = "checks" not in policy
    if by_default:  # until the controller writes them, assume a shadow's checks: only these admit a step of 0 %
        checks = state.checks or default_checks(shadowed=True)
        policy["checks"] = [check.model_dump(by_alias=True) for check in checks]
    spec = RolloutSpec.parse(policy, where)
    return RolloutView(
        meta["name"],
        meta["namespace"],
        meta.get("creationTimestamp", ""),
        bool(status),
        spec,
        state,
        _blocking_rollout(rollout, rollouts),
        not by_default or bool(state.checks),
    )


def _blocking_rollout(rollout: Object, rollouts: Iterable[Object]) -> str:
    turn = next_rollout(rollouts_of_service(rollouts, rollout["spec"]["inferenceService"]))
    name = turn["metadata"]["name"] if turn and is_under_way(rollout) else ""
    return "" if name == rollout["metadata"]["name"] else str(name)


def _known_fields(model: type[CamelCaseConfig], values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop fields of other clients, which the model does not know; the CRD refuses misspelt ones."""
    aliases = {field.alias or name for name, field in model.model_fields.items()}
    return {name: value for name, value in values.items() if name in aliases}


def find_rollout(rollouts: Iterable[Object], name: str, namespace: str) -> Object:
    """Find a rollout by its own name, or the current one of the service `name`, or its newest if all have ended."""
    every = list(rollouts)
    exact = [rollout for rollout in every if rollout["metadata"]["name"] == name]
    same_service = rollouts_of_service(every, name)
    if candidates := exact or [newest for newest in (next_rollout(same_service),) if newest] or same_service[-1:]:
        return candidates[0]
    names = ", ".join(sorted(rollout["metadata"]["name"] for rollout in every))
    raise DataError(
        f"{name}: no rollout, and no service with one, in namespace {namespace}. There are: {names or 'none'}."
    )


HEADS = ("ROLLOUT", "SERVICE", "RELEASE", "PHASE", "PERCENT", "STEP", "OUTCOME", "REASON")


def table(rollouts: Iterable[RolloutView], namespace: str) -> list[str]:
    """Format one line per rollout, as kubectl does; long reasons are never wrapped."""
    rows = [HEADS, *map(table_row, rollouts)]
    if len(rows) == 1:  # the API server's list is empty, too, for a namespace that does not exist
        return [
            f"no rollouts in {namespace}; `kubectl get namespace {namespace}` says whether there is one of this name"
        ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def table_row(view: RolloutView) -> tuple[str, ...]:
    state = view.state
    step = f"{state.step + 1}/{len(view.spec.steps)}" if view.begun else ""
    phase = ", ".join(filter(None, (view.phase, _pending_command(view), view.behind and f"waits for {view.behind}")))
    return (
        view.name, view.spec.inference_service, view.release, phase,
        f"{state.percent} %", step, state.outcome, (state.reasons or ("",))[0],
    )  # fmt: skip


def _pending_command(view: RolloutView) -> str:
    words = ("abort", "promote", "paused")
    return "" if view.done else next((word for word in words if getattr(view.spec, word)), "")


def detail(view: RolloutView) -> list[str]:
    """Format everything about one rollout: its state, what it waits for, and its evidence."""
    spec, state = view.spec, view.state
    shares, command = ", ".join(map(str, spec.steps)), _pending_command(view)
    return [
        f"{view.name}: {view.release} to {spec.inference_service} in {view.namespace}, made {view.created}",
        f"{view.phase}: {_progress(view)}; steps {shares} %{f'; asked: {command}' if command else ''}",
        f"judged by {_checks(view)}",
        *([f"stable: {state.stable.digest[:SHORT]}, version {state.stable.version}"] if state.stable else []),
        f"run {spec.run or 'unnamed'}, verdict {spec.verdict[:SHORT] or 'unnamed'}",
        *_section("waits for", waiting_reasons(view)),
        *_section("reasons", state.reasons),
        *_section("evidence", evidence_lines(view)),
        *_section("lacking before the next share", missing_for_next_share(view)),
    ]


def _checks(view: RolloutView) -> str:
    if not view.checks_known:
        return "the controller's default checks, which its first look notes here"
    return ", ".join(check.name for check in view.spec.checks)


def _progress(view: RolloutView) -> str:
    if view.state.outcome:
        return view.state.outcome
    return f"the canary at {view.state.percent} %, step {view.state.step + 1} of {len(view.spec.steps)}"


def waiting_reasons(view: RolloutView) -> tuple[str, ...]:
    """List the events that the next decision waits for."""
    if view.behind:
        return (f"{view.behind}, which is older and has not ended",)
    if view.state.phase == "Verify":
        return tuple(line.why for line in view.state.history[-1:] if line.action == "unverified")
    if view.state.phase == "Promote" and view.state.stable is None:
        why = f"its pods: the first model of {view.spec.inference_service}, and nobody is served until they are ready"
        return (why, *(f"so far {cause}" for cause in _blind_causes(view)))
    if view.state.phase in ("Done", "Rollback") or not view.state.blind:
        return ()
    causes = _blind_causes(view) or ("nothing credible is seen of the canary",)
    return tuple(f"evidence: for {view.state.blind:,.0f} s {cause}" for cause in causes)


def _blind_causes(view: RolloutView) -> tuple[str, ...]:
    """Find in the history why metrics are missing; lines about earlier outages are ignored."""
    history = view.state.history
    new = history[-1:] if view.state.blind < BLIND_NOTED_SECONDS else history
    return tuple(line.why for line in new if line.action == "blind")[-1:]


def _section(head: str, lines: Iterable[str]) -> list[str]:
    listed = [f"  {line}" for line in lines]
    return [f"{head}:", *listed] if listed else []


def evidence_lines(view: RolloutView) -> list[str]:
    """Format each check's counts at this step, and the current values of its two sequential tests (safe and harm)."""
    needed = harm_needed(len(view.state.evidence) or 1)
    return [
        f"{describe_score(score)}: worse {score.harm_value:,.3g} to 1 (back at {needed:,.0f}), not worse by "
        f"{100 * score.margin:.3g} points {score.safe_value:,.3g} to 1 (on at {safe_needed():,.0f})"
        for score in view.state.evidence
        if score.canary.total
    ]


def missing_for_next_share(view: RolloutView) -> tuple[str, ...]:
    """List the evidence that is missing before the canary gets its next share of the traffic."""
    measured = view.state.phase == "Analyse" and view.state.evidence
    return missing_evidence(view.state, view.spec) if measured else ()


def rollout_json(view: RolloutView) -> dict[str, Any]:
    return {
        "name": view.name, "namespace": view.namespace, "made": view.created, "phase": view.phase,
        "lacking": list(missing_for_next_share(view)), "waits_for": list(waiting_reasons(view)),
        "spec": view.spec.model_dump(mode="json", by_alias=True, exclude=None if view.checks_known else {"checks"}),
        "status": view.state.model_dump(mode="json", by_alias=True),
    }  # fmt: skip


def outcome_error(view: RolloutView) -> QinglanError | None:
    """Return the error that ends a watching command; None if the canary was promoted."""
    if not view.done or view.state.outcome == "Promoted":
        return None
    reasons = "; ".join(view.state.reasons) or "it gave no reason"
    return GateHeldError(
        f"{view.name} ended {view.state.outcome}: {reasons}. `qinglan rollout history {view.name}` has it all."
    )
