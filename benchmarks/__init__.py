"""What each thing costs against what a user could run instead. Some of them lean on what the tests are made of."""

import sys
from pathlib import Path
from types import ModuleType

# verl installs its own tests as a package of that name, which would be found before our folder.
ours = ModuleType("tests")
ours.__path__ = [str(Path(__file__).parent.parent / "tests")]
sys.modules.setdefault("tests", ours)
