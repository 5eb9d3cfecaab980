"""The memory that is compared with a training's need is the least that machine and containers allow."""

from pathlib import Path

import pytest

from qinglan.sizing.host_memory import cgroup_limits

GIB = 1024**3


@pytest.mark.parametrize(
    ("membership", "files", "limits"),
    [
        ("0::/\n", {"memory.max": f"{8 * GIB}\n"}, [8 * GIB]),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": f"{6 * GIB}\n", "memory.max": "max\n"}, [6 * GIB]),
        ("0::/a/b\n", {"a/b/memory.max": f"{4 * GIB}\n", "a/memory.max": f"{6 * GIB}\n"}, [4 * GIB, 6 * GIB]),
        ("5:cpu,memory:/docker/c1\n3:pids:/\n", {"memory/memory.limit_in_bytes": f"{8 * GIB}\n"}, [8 * GIB]),
        ("5:cpu:/\n0::/\n", {"memory.limit_in_bytes": f"{8 * GIB}\n"}, []),
    ],
    ids=["container", "parent", "both", "version 1, the host's path", "no memory controller"],
)
def test_limits_are_those_of_the_own_group_and_of_those_above_it(
    membership: str, files: dict[str, str], limits: list[int], tmp_path: Path
) -> None:
    (tmp_path / "self").write_text(membership)
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    assert [*cgroup_limits(tmp_path / "tree", tmp_path / "self")] == limits
