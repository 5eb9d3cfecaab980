"""The loader and the dumper of YAML in C: those in Python take half a second for a compiled graph."""

import yaml

LOADER, DUMPER = yaml.CSafeLoader, yaml.CSafeDumper
