"""Files that are no kubeconfig, or none that leads anywhere."""

from pathlib import Path

BROKEN = [
    b"", b"hello", b"[]", b"\xff\xfe\x00", b"not: [yaml", b"apiVersion: v1\nkind: Config\n",
    b"current-context: a\ncontexts: [a]\nclusters: [1]\nusers: {}\n",
]  # fmt: skip


def with_plugin(folder: Path, command: str) -> Path:
    """A kubeconfig whose login comes from a program."""
    plugin = f"{{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['-c', '{command}']}}"
    path = folder / "config"
    path.write_text(
        f"apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{{name: a, user: {{exec: {plugin}}}}}]\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
    )
    return path
