"""The libraries of verl's processes on a CPU, imported with the environment that the ppo stage would start them with.

A fork server of the tests imports this module: verl's driver and its workers are forks of it, and torch is imported
once for all trainings of a run of the tests.
"""

import os

from components.training.ppo.config import PpoConfig
from standins.verl_cpu import environment
from standins.verl_cpu.fork_server import import_libraries

os.environ.update(environment(PpoConfig()))
import_libraries()
