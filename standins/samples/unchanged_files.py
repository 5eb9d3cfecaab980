"""Write a sample into a folder that may already contain one."""

import filecmp
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from qinglan.errors import ConfigError
from qinglan.files.files import atomic_write


@contextmanager
def without_overwriting(out: Path) -> Iterator[Path]:
    """Yield a temporary folder, whose files are copied to `out` at the end.

    Raises a ConfigError, and copies nothing, if `out` has a file of the same name with other content.
    """
    with TemporaryDirectory(prefix="qinglan-") as temporary:
        yield Path(temporary)
        files = sorted(Path(temporary).iterdir())
        for file in files:
            target = out / file.name
            if target.exists() and not filecmp.cmp(file, target, shallow=False):
                raise ConfigError(
                    f"{target}: holds another sample, or yours, and nothing was changed. Remove it, or give --out "
                    "another folder."
                )
        for file in files:
            with atomic_write(out / file.name) as partial:
                shutil.copyfile(file, partial)
