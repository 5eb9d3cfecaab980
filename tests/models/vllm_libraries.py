"""The libraries of verl's processes with vLLM's rollout: verl_libraries.py in the ppo image's environment."""

import os

from components.training.ppo.config import PpoConfig
from standins.verl_cpu.fork_server import import_libraries
from standins.verl_cpu.vllm_device import environment

os.environ.update(environment(PpoConfig()))
import_libraries()
