"""Import modules in another environment, and print which fail and why.

`python -m pipelines.execute.environments.import_check NAME ...`

The last line of stdout is a JSON object: the error of each name that cannot be imported.
"""

import json
import pkgutil
import sys
from collections.abc import Iterable


def failed_imports(names: Iterable[str]) -> dict[str, str]:
    """The names that cannot be imported; a name may end in an attribute of a module."""
    failed = {}
    for name in names:
        try:
            pkgutil.resolve_name(name)
        except (Exception, SystemExit) as error:  # a library may end the process when it misses something
            failed[name] = f"{type(error).__name__}: {error}"
    return failed


if __name__ == "__main__":
    result = failed_imports(sys.argv[1:])
    sys.stdout.write(f"\n{json.dumps(result)}\n")
