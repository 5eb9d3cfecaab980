"""`qinglan keys`: manage the signing keys and the trust policy."""

from pathlib import Path
from typing import Annotated, Any

import typer

from qinglan.terminal import in_language, say

keys = typer.Typer(help="Signing keys, and the trust policy beside them.", no_args_is_help=True)

Folder = Annotated[
    Path | None, typer.Option(help="The folder of keys: QINGLAN_KEYS, or ~/.config/qinglan/keys.", show_default=False)
]
RoleName = Annotated[str, typer.Argument(help="builder, releaser or rollout.")]


@keys.command()
def new(
    role: Annotated[
        list[str] | None, typer.Argument(help="builder, releaser, rollout; all if none is named.")
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="Tenants that the key may sign for; all by default.")
    ] = None,
    folder: Folder = None,
) -> None:
    """Make the keys of these roles, and let the trust policy name them."""
    from qinglan.lineage.signing.keys import ROLES, keys_folder
    from qinglan.lineage.signing.trust import new_key

    folder = folder or keys_folder()
    for role_name in role or ROLES:
        key_id = new_key(folder, _role(role_name), tuple(tenant or ("*",)))
        say(f"{folder / role_name}.pem: key {key_id[:12]}, named in {folder / 'trust.yaml'}")


@keys.command()
def rotate(role: RoleName, folder: Folder = None) -> None:
    """Replace a role's key: what the old one has signed counts as of its time, and it signs nothing more."""
    from qinglan.clock import how_long
    from qinglan.lineage.signing.keys import keys_folder
    from qinglan.lineage.signing.trust import TRUST_FILE, rotate_key

    folder = folder or keys_folder()
    done = rotate_key(folder, _role(role))
    say(
        f"{role}: key {done.old[:12]} is rotated out, its private half deleted; key {done.new[:12]} signs from now on"
    )
    say(
        f"What {done.old[:12]} signed counts up to {done.until:%F %T}Z, and nothing that is dated later. If it has "
        "signed later dates, since a clock was wrong here or there, set its `until` in "
        f"{folder / TRUST_FILE} after them."
    )
    if done.clock_behind:
        say(
            f"{folder / TRUST_FILE} has a date that is {how_long(done.clock_behind)} ahead of this machine's clock: "
            "this clock is behind, or one was ahead when that was written. If this clock is behind, set it, and set "
            f"the `until` of key {done.old[:12]} in that file to the right time. If one was ahead, rotate each key "
            "that `qinglan keys list` dates in the future."
        )


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The key's id, or its first characters.")],
    reason: Annotated[str, typer.Option(help="Shown in every audit.")],
    at: Annotated[
        str, typer.Option(help="Time from which on nothing that the key signed counts, such as 2026-11-22T08:00:00Z.")
    ] = "",
    folder: Folder = None,
) -> None:
    """Trust a key no more, from a time on: now, or earlier."""
    from qinglan.lineage.signing.keys import keys_folder
    from qinglan.lineage.signing.trust import revoke_key

    revoked, since = revoke_key(folder or keys_folder(), key, reason, at)
    say(f"key {revoked[:12]} is revoked: what it signed from {since} on does not count")


@keys.command("list")
def list_(folder: Folder = None) -> None:
    """List the keys with their roles, tenants and periods of validity."""
    from rich.table import Table

    from qinglan.lineage.signing.keys import keys_folder
    from qinglan.lineage.signing.trust import TRUST_FILE, key_rows, load_trust
    from qinglan.terminal.console import Console

    folder = folder or keys_folder()
    table = Table(
        "key", "role", "tenants", "since", "until", "", title=str(folder / TRUST_FILE), title_justify="left"
    )
    for row in key_rows(load_trust(folder / TRUST_FILE), folder):
        *cells, note = row
        table.add_row(*cells, in_language(note))
    Console().print(table)


def _role(name: str) -> Any:
    from qinglan.errors import ConfigError
    from qinglan.lineage.signing.keys import ROLES

    if name not in ROLES:
        raise ConfigError(f"{name!r} is no role. There are: {', '.join(ROLES)}.")
    return name
