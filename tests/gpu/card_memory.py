"""Memory that all processes hold of a machine's first GPU, read several times a second with NVIDIA's own program."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

QUERY = "timestamp,memory.used,utilization.gpu"


class CardMemory:
    """Writes the readings to a file, MiB and per cent; `peak`, GiB, once its block has ended."""

    def __init__(self, readings: Path) -> None:
        self._readings = readings

    def __enter__(self) -> Self:
        command = ["nvidia-smi", "--id=0", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", "-lms", "200"]
        with self._readings.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self.peak = peak_gib(self._readings.read_text())


def peak_gib(readings: str) -> float:
    """The most that was in use; a last line that was cut short is not read."""
    lines = [line.split(", ") for line in readings.splitlines()]
    return max((float(line[1]) for line in lines if len(line) == 3), default=0.0) / 1024
