"""`qinglan rollout`: start, watch and steer rollouts. The decisions are made by each rollout's controller."""

from pathlib import Path
from typing import Annotated, Any

import typer

from commands.options import Json, Store, Trust, only_json, store_address, trust_policy
from qinglan.terminal import say, say_json

rollout = typer.Typer(help="Start, list, watch and steer rollouts.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A rollout; or an InferenceService, whose current rollout is meant.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="KUBECONFIG's by default.", show_default=False)]


@rollout.command()
def start(
    target: Annotated[str, typer.Argument(help="A release in the store: tenant/model, or its digest.")],
    store: Store = "",
    settings: Annotated[
        Path | None, typer.Option(help="YAML in the words of a profile's `deploy`, such as {rollout: {steps: ...}}.")
    ] = None,
    namespace: Namespace = "",
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Begin the rollout of a release, after the whole walk of its lineage; the same again changes nothing."""
    from commands.rollout.start import start_rollout as begin

    with only_json(as_json):  # a pull shows progress
        done = begin(target, store_address(store), namespace, settings, trust_policy(trust))
    if as_json:
        answer = done._asdict()
        answer["said"] = answer.pop("message")  # the key that scripts know
        say_json(answer)
    else:
        say(done.message, f"watch it: qinglan rollout watch {done.rollout}")


@rollout.command()
def status(
    name: Annotated[str, typer.Argument(help="A rollout or a service; all of them without one.")] = "",
    namespace: Namespace = "",
    as_json: Json = False,
) -> None:
    """Show all rollouts as a table; or one with its evidence, and with what it lacks before the next share."""
    from commands.rollout.rollout_client import RolloutClient
    from commands.rollout.view import detail, read_rollout, table
    from commands.rollout.view import rollout_json as values

    rollouts = RolloutClient(namespace)
    every = [] if name else rollouts.all()
    views = [rollouts.get(name)] if name else [read_rollout(rollout, every) for rollout in every]
    if as_json:
        say_json(values(views[0]) if name else [values(view) for view in views])
    elif name:
        say(*detail(views[0]))
    else:
        say(*table(views, rollouts.namespace))


@rollout.command()
def watch(name: Name, namespace: Namespace = "", as_json: Json = False) -> None:
    """Print a rollout's decisions as they are made, until it ends. Exit code 0: promoted; 7: held or taken back."""
    import sys

    from commands.rollout.rollout_client import RolloutClient
    from commands.rollout.view import RolloutView, outcome_error
    from commands.rollout.view import rollout_json as values
    from serving.rollout.timeline import TimelineFollower

    rollouts, follower = RolloutClient(namespace), TimelineFollower()

    def report(view: RolloutView) -> None:
        for line in follower.lines(view.state, view.spec):
            say(line, to=sys.stderr if as_json else sys.stdout)

    view = rollouts.follow(rollouts.get(name).name, report)
    say_json(values(view)) if as_json else say(view.state.outcome)
    if error := outcome_error(view):
        raise error


@rollout.command()
def pause(name: Name, namespace: Namespace = "", as_json: Json = False) -> None:
    """Give the canary no more traffic for now; harm still takes it back."""
    _send_command("pause", name, namespace, as_json)


@rollout.command()
def resume(name: Name, namespace: Namespace = "", as_json: Json = False) -> None:
    """Go on after a pause."""
    _send_command("resume", name, namespace, as_json)


@rollout.command()
def promote(name: Name, namespace: Namespace = "", as_json: Json = False) -> None:
    """Give the canary everything once its pods are ready, whatever the evidence says."""
    _send_command("promote", name, namespace, as_json)


@rollout.command()
def abort(name: Name, namespace: Namespace = "", as_json: Json = False) -> None:
    """Go back to the stable model, and end."""
    _send_command("abort", name, namespace, as_json)


@rollout.command()
def history(
    name: Name,
    verify: Annotated[
        bool, typer.Option("--verify", help="Against the signed statement beside the release: 8 altered, 9 missing.")
    ] = False,
    store: Annotated[str, typer.Option(help="Of --verify; where the release is served from by default.")] = "",
    namespace: Namespace = "",
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Every decision with the numbers that it was made on."""
    from commands.rollout.history_verifier import verify_history
    from commands.rollout.rollout_client import RolloutClient
    from commands.rollout.view import rollout_json as values
    from serving.rollout.timeline import timeline

    view = RolloutClient(namespace).get(name)
    key = verify_history(view, store, trust_policy(trust)).key if verify else ""
    if as_json:
        say_json({"history": values(view)["status"]["history"], "signed_by": key})
    else:
        say(*timeline(view.state), *([f"as signed by key {key}"] if key else []))


def _send_command(word: Any, name: str, namespace: str, as_json: bool) -> None:
    from commands.rollout.commands import change_for_command
    from commands.rollout.rollout_client import RolloutClient

    rollouts = RolloutClient(namespace)
    view = rollouts.get(name)
    change = change_for_command(word, view)
    if change.spec:
        rollouts.change(view.name, change.spec)
    answer = {"rollout": view.name, "changed": bool(change.spec), "spec": dict(change.spec), "said": change.message}
    say_json(answer) if as_json else say(change.message)
