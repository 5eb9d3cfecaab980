"""Memory that a process may use here: the machine's memory, or less if a container or a job limits it."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

CGROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def host_bytes() -> int:
    """Return the bytes of this machine's memory, or the lowest limit of this process's control groups if it is
    lower."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *cgroup_limits()])


def cgroup_limits(tree: Path = CGROUPS, membership: Path = MEMBERSHIP) -> Iterator[int]:
    """Yield the memory limits of this process's control group and of its parent groups, for cgroup versions 1 and 2.

    A line of /proc/self/cgroup is `0::/GROUP` for version 2, and `NUMBER:CONTROLLERS:/GROUP` for version 1. In a
    container, the group may be a path that exists only on the host; the container's limit is then at the root of the
    tree.
    """
    lines = membership.read_text().splitlines() if membership.exists() else []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            mount, name = tree, "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = tree / "memory", "memory.limit_in_bytes"
        else:
            continue
        # The limit of a group holds for all groups below it, so the lowest of all counts:
        # https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
        path = PurePosixPath(group.lstrip("/"))
        for folder in (path, *path.parents):
            with suppress(OSError, ValueError):  # no such group here, or `max`: no limit
                yield int((mount / folder / name).read_text())
