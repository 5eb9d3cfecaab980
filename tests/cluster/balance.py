"""Which tests a worker runs together, and in which order groups are handed out: the long ones first.

Files that use one overlay are a group, for it takes half a minute to install one and take it away; every other file
is a group of its own. What is not named here is short, and comes last.
"""

from collections.abc import Sequence

OVERLAYS = {
    "single-tenant": ("test_rollout_controller", "test_rollout_kserve", "test_shadow"),
    "a100": ("test_deploy", "test_kserve", "test_initialiser", "test_models_guarded"),
    "release": ("test_manifests_policies", "test_manifests_gateway"),
    "multi-tenant": ("test_manifests_tenants",),
}
ORDER = (
    "single-tenant", "a100", "test_jobs", "test_store_killed", "test_up_down", "test_opensearch_load", "release",
    "test_opensearch_ranks", "test_rollout_evidence", "test_rollout_cli",
)  # fmt: skip
OF_FILES = {file: overlay for overlay, files in OVERLAYS.items() for file in files}


def group(file: str, overlay: str) -> str:
    """Of a test of this file, where `overlay` is the one that it installs itself, if any."""
    return overlay if overlay in OVERLAYS else OF_FILES.get(file, file)


def place(file: str, overlay: str) -> tuple[int, str, int]:
    """What tests are sorted by; in a group, whoever checks a fresh installation is first."""
    name = group(file, overlay)
    files: Sequence[str] = OVERLAYS.get(name, (file,))
    order = ORDER.index(name) if name in ORDER else len(ORDER)
    return order, name, files.index(file) if file in files else -1
