"""Which tests a worker runs together, and in which order groups are handed out: the long ones first.

Files that use one overlay are a group, for it takes half a minute to install one and take it away; every other file
is a group of its own. What is not named here is short, and comes last.
"""

from pathlib import PurePath

from xdist.scheduler import LoadScopeScheduling

OVERLAYS = {
    "single-tenant": ("test_rollout_controller", "test_rollout_kserve", "test_shadow"),
    "a100": ("test_deploy", "test_kserve", "test_initialiser"),
    "release": ("test_policy_table",),
    "multi-tenant": ("test_manifests_tenants",),
}
ORDER = (
    "single-tenant", "a100", "test_jobs", "test_store_killed", "test_plane_lifecycle", "test_opensearch_load",
    "release", "test_opensearch_ranks", "test_rollout_evidence", "test_rollout_cli",
)  # fmt: skip
INSTALLS = "::test_the_overlay_is_applied_and_its_services_run["
OF_FILES = {file: overlay for overlay, files in OVERLAYS.items() for file in files}


def group(nodeid: str) -> str:
    """The overlay that the test installs itself or that its file shares; else its file."""
    file, parameter = file_of(nodeid), nodeid.partition("[")[2].removesuffix("]")
    return parameter if INSTALLS in nodeid and parameter in OVERLAYS else OF_FILES.get(file, file)


def place(nodeid: str) -> tuple[int, str, int]:
    """Sort key of tests; in a group, the checks of a fresh installation come first."""
    name, file = group(nodeid), file_of(nodeid)
    files = OVERLAYS.get(name, (file,))
    order = ORDER.index(name) if name in ORDER else len(ORDER)
    return order, name, files.index(file) if file in files else -1


def file_of(nodeid: str) -> str:
    return PurePath(nodeid.partition("::")[0]).stem


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's own, by group."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
