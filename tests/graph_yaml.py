"""The loader and the dumper of YAML in C: a compiled graph takes those in Python half a second."""

import yaml

LOADER, DUMPER = yaml.CSafeLoader, yaml.CSafeDumper
