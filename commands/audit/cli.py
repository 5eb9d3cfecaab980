"""`qinglan audit`: verify a model's whole lineage by digests and signatures, and show it."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from commands.options import Json, Store, Trust, only_json, trust_policy
from qinglan.terminal import say, say_json


def audit(
    target: Annotated[
        str,
        typer.Argument(
            help="A release's folder, a run's, a file in a run; tenant/model, a digest, or isvc:NAMESPACE/NAME."
        ),
    ],
    store: Store = "",
    trust: Trust = None,
    files: Annotated[
        list[Path] | None, typer.Option(help="A folder with bytes by any name, or a git repository; may be repeated.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write one HTML page with the tree here.")] = None,
    as_json: Json = False,
    only_bytes: Annotated[
        bool, typer.Option("--bytes", help="Count a signed digest without its bytes as missing.")
    ] = False,
    which_models: Annotated[
        bool, typer.Option("--which-models", help="List what descends from this digest or file, releases first.")
    ] = False,
    why: Annotated[bool, typer.Option("--why", help="The chain of the verdict in words.")] = False,
    diff: Annotated[str, typer.Option(help="What changed between this other release and TARGET.")] = "",
    break_glass: Annotated[
        str, typer.Option(help="The reason to deploy it although something is missing; signed by the releaser's key.")
    ] = "",
    by: Annotated[str, typer.Option(help="The person who signs the override.")] = "",
    live: Annotated[
        bool, typer.Option("--live", help="TARGET is an InferenceService: what it serves, by KUBECONFIG.")
    ] = False,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of --live; KUBECONFIG's by default.")] = "",
) -> None:
    """Walk from a model back to its data, by digest and signature.

    Exit code 0: everything is there and unchanged. 8: something is altered, or not signed by a trusted key. 9:
    something is missing.
    """
    from qinglan.errors import ConfigError
    from qinglan.store import STORE_VARIABLE

    policy = trust_policy(trust)
    live = live or target.startswith("isvc:")
    if sum((which_models, why, bool(diff), bool(break_glass), live)) > 1:
        raise ConfigError("--which-models, --why, --diff, --break-glass and --live: one at a time.")
    if live and (page or only_bytes):
        raise ConfigError("--page and --bytes are of one release: audit each that --live names by its digest.")
    store = store or os.environ.get(STORE_VARIABLE) or ("" if live else "runs/store")
    if live:
        _audit_live(target, namespace, store, files or [], policy, as_json)
    elif which_models:
        _which_models(target, store, files or [], policy, as_json)
    elif why or diff:
        _why_or_diff(target, diff, store, files or [], policy, as_json)
    elif break_glass:
        from qinglan.lineage.auditing import deploy_gate

        say(*deploy_gate.break_glass(target, store, files or [], policy, break_glass, by))
    else:
        _audit(target, store, files or [], policy, page, as_json, only_bytes)


def _audit(
    target: str, store: str, files: list[Path], policy: Any, page: Path | None, as_json: bool, only_bytes: bool
) -> None:
    from qinglan.lineage.auditing import audit as auditing

    with only_json(as_json):
        result = auditing.audit(target, policy, store=store, files=files, only_bytes=only_bytes)
    if page:
        from qinglan.lineage.auditing.audit_page import write_page

        write_page(result, page)
    if as_json:
        say_json(auditing.as_json(result))
    else:
        from qinglan.lineage.auditing.terminal_tree import print_audit

        print_audit(result)
        if page:
            say(page)
    if error := auditing.audit_error(result):
        raise error


def _audit_live(target: str, namespace: str, store: str, files: list[Path], policy: Any, as_json: bool) -> None:
    from commands.audit.live import audit_live, live_as_json, print_live

    with only_json(as_json):
        live_audit = audit_live(target, namespace, store, files, policy)
    say_json(live_as_json(live_audit)) if as_json else print_live(live_audit)
    if error := live_audit.error:
        raise error


def _why_or_diff(target: str, other: str, store: str, files: list[Path], policy: Any, as_json: bool) -> None:
    from qinglan.lineage.auditing.audit import audit_error, audit_target
    from qinglan.lineage.auditing.audit_targets import open_target
    from qinglan.lineage.auditing.explain import diff_releases, explain_release, format_changes

    with open_target(target, store, files) as release:
        result = audit_target(release, policy)
        error = audit_error(result)
        if not other:
            lines = explain_release(release, result.graph)
            say_json(lines) if as_json else say(*lines)
        else:
            with open_target(other, store, files) as before:
                earlier = audit_target(before, policy)
                changes = diff_releases((before, earlier.graph), (release, result.graph))
                error = error or audit_error(earlier)
            say_json([change._asdict() for change in changes]) if as_json else say(*format_changes(changes))
    if error:
        raise error


def _which_models(target: str, store: str, files: list[Path], policy: Any, as_json: bool) -> None:
    from qinglan.files.digests import digest
    from qinglan.lineage.auditing.descendants import which_models
    from qinglan.lineage.auditing.terminal_tree import print_descendants

    path = Path(target)
    ancestor = digest(path) if path.exists() else target
    descendants = which_models(ancestor, [Path("runs"), *files], policy, store)
    say_json([descendant._asdict() for descendant in descendants]) if as_json else print_descendants(
        ancestor, descendants
    )
