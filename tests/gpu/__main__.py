"""The checks that want a GPU: `make test-gpu`, or `python -m tests.gpu` in a tree of tests.gpu.pack.

It runs to its end everywhere; where no GPU is, each check says so and nothing is measured. The exit code is 1 if a
check failed.
"""

import sys
import time
import traceback

from tests.gpu.wheels import use_carried_wheels

NO_GPU = "needs a GPU, and torch sees none on this machine"


def main() -> int:
    use_carried_wheels()
    import torch

    from tests.gpu.checks import CHECKS, PLAN, Device
    from tests.gpu.report import Result, table, to_json

    started, results = time.monotonic(), []
    for name, check in CHECKS.items():
        if not torch.cuda.is_available():
            results.append(Result(name, None, note=NO_GPU))
            continue
        try:
            results.append(check(Device("cuda"), PLAN))
        except Exception as error:  # a check that breaks must not hide what the next one measures
            traceback.print_exc()
            results.append(Result(name, False, note=f"{type(error).__name__}: {error}"))
        torch.cuda.empty_cache()
        print(table(results[-1:]), flush=True)
    if not torch.cuda.is_available():
        print(table(results))
    print(to_json(results, time.monotonic() - started))
    return int(any(result.passed is False for result in results))


if __name__ == "__main__":
    sys.exit(main())
