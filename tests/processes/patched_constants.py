"""Programs with other constants: a log that is written each 0.05 seconds shows what it would show after five.

python -m tests.processes.patched_constants serving.rewriter.payload_log.FLUSH_SECONDS=0.05 -- serving.rewriter ...
"""

import importlib
import runpy
import sys


def with_constants(*changes: str) -> list[str]:
    """Command before a module's name and arguments."""
    return ["tests.processes.patched_constants", *changes, "--"]


def main() -> None:
    end = sys.argv.index("--")
    changes, (module, *arguments) = sys.argv[1:end], sys.argv[end + 1 :]
    for change in changes:
        name, value = change.split("=")
        owner_name, _, constant = name.rpartition(".")
        owner = importlib.import_module(owner_name)
        assert isinstance(getattr(owner, constant), float), f"{name} is no such constant"
        setattr(owner, constant, float(value))
    sys.argv = ["-m", *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
