"""Each Python of a test's training on two nodes loads this file: the workers of both nodes' Ray are forked."""

import standins.verl_cpu.patches  # noqa: F401 (registers what Ray's start needs)
