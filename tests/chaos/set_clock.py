"""A clock of the time of day that can be set while processes run; nothing in them knows of it.

clock = SetClock.make(folder)
subprocess.Popen(command, env=os.environ | clock.environment)
clock.set(-3 * 3600)        # all of them are three hours back at once
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("clock.c")
COMPILER = shutil.which("cc")


class SetClock(NamedTuple):
    library: Path
    file: Path

    @classmethod
    def make(cls, folder: Path) -> "SetClock":
        """A RuntimeError where there is no C compiler."""
        if COMPILER is None:
            raise RuntimeError("The clock of the chaos needs a C compiler (cc).")
        clock = cls(folder / "clock.so", folder / "clock")
        command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(clock.library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        clock.set(0)
        return clock

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CHAOS_CLOCK": str(self.file)}

    def set(self, seconds: int) -> None:
        """Eight bytes in place: every process has the file mapped."""
        file = os.open(self.file, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, struct.pack("=q", seconds), 0)
        finally:
            os.close(file)
