"""python -m images.building cpu [--push REGISTRY/PREFIX]     build images from the committed tree, pinned by digest.

What is built is the last commit, never the working tree, so that the revision in the label is the truth.
"""

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from images import IMAGES, NAMES, STAND_INS, WITH_COMPILER, WITH_STAND_INS

ROOT = IMAGES.parent
RELEASE = ROOT / "manifests" / "overlays" / "release" / "images" / "kustomization.yaml"
BASE = "docker.io/library/python:3.11-slim-bookworm"
VERSION = "0.1.0"
SECRETS = {
    "pip.conf": ("PIP_CONFIG_FILE", ("~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf")),
    "ca.pem": ("PIP_CERT", ()),
}
"""Files with which a build reaches the package index: the variable that names each, and its usual paths."""

HEADER = (
    "# Written by `make images`: what was built, by digest. As long as one of cpu, serve and style is not here, "
    "the release does not render.\n"
)


class Built(NamedTuple):
    """An image and its address."""

    name: str
    where: str
    """Address that a container engine pulls, without a tag."""

    digest: str

    @property
    def reference(self) -> str:
        """Address with the digest, which always names the same image."""
        return f"{self.where}@{self.digest}"


def with_images(text: str, built: Sequence[Built]) -> str:
    """The release's list of images with these images; entries of other images stay."""
    known = {entry["name"]: entry for entry in (yaml.safe_load(text) or {}).get("images") or []} if text else {}
    for image in built:
        name = f"qinglan/{image.name}"
        renamed = {"newName": image.where} if image.where != name else {}
        known[name] = {"name": name, **renamed, "digest": image.digest}
    body = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "images": [known[name] for name in sorted(known)],
    }
    return HEADER + yaml.safe_dump(body, sort_keys=False)


def compile_options(built: Sequence[Built]) -> list[str]:
    """Options of `qinglan compile` and `qinglan submit` that write these images' digests into the graphs."""
    from pipelines.graph.compiler import image_names

    taken = image_names()
    return [f"--image {name}={image.reference}" for image in built if (name := f"qinglan/{image.name}") in taken]


def secrets(environment: Mapping[str, str]) -> dict[str, Path]:
    """The files that a build needs to reach this machine's package index, and that no layer keeps."""
    secrets: dict[str, Path] = {}
    for name, (variable, usual) in SECRETS.items():
        paths = [environment[variable]] if variable in environment else usual
        existing = [path for path in (Path(path).expanduser() for path in paths) if path.is_file()]
        secrets |= {name: existing[0]} if existing else {}
    return secrets


def build(name: str, engine: str, base: str, base_digest: str, pushed_to: str) -> Built:
    """One image, from the last commit."""
    lock = hashlib.sha256(_committed(f"images/{name}/requirements.lock")).hexdigest()
    arguments = {
        "IMAGE": name,
        "RUNTIME": "compiler" if name in WITH_COMPILER else "plain",
        "BASE": base,
        "BASE_DIGEST": base_digest,
        "REVISION": _git("rev-parse", "HEAD"),
        "LOCK": lock,
    }
    tag = f"qinglan/{name}:{VERSION}"
    with _committed_tree() as folder:
        command = [engine, "build", "--file", f"{folder}/images/Containerfile", "--tag", tag]
        command += [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
        command += [
            word for key, path in secrets(os.environ).items() for word in ("--secret", f"id={key},src={path}")
        ]
        _show([*command, folder])
    if pushed_to:
        return _push(name, engine, tag, f"{pushed_to}/{name}")
    return Built(name, f"qinglan/{name}", _engine(engine, "image", "inspect", "--format", "{{.Digest}}", tag))


def build_stand_ins(name: str, engine: str) -> None:
    below = ["--build-arg", f"BELOW=qinglan/{WITH_STAND_INS[name]}:{VERSION}"]
    with _committed_tree() as folder:
        command = [engine, "build", "--file", f"{folder}/images/{STAND_INS}/Containerfile", *below]
        _show([*command, "--tag", f"qinglan/{name}:{VERSION}", folder])


def base_digest(engine: str, base: str) -> str:
    """Digest of the base in the registry; if the registry cannot be asked, of the local copy."""
    pulled = subprocess.run([engine, "pull", "--quiet", base], capture_output=True, text=True, check=False)
    here = subprocess.run(
        [engine, "image", "inspect", "--format", "{{.Digest}} {{.Labels}}", base],
        capture_output=True,
        text=True,
        check=False,
    )
    if here.returncode:
        sys.exit(
            f"The base {base} can neither be pulled nor is it here: {pulled.stderr.strip().splitlines()[-1:]}\n"
            f"Without a registry, `images/stand_in_base.sh {base}` makes one from Debian, to try a build with."
        )
    digest, _, labels = here.stdout.strip().partition(" ")
    if "dev.qinglan.stand-in" in labels:
        print(f"the base is a stand-in made on this machine ({digest}): a build to try, not to release", flush=True)
    return digest


def need_engine(engine: str) -> None:
    """Fail unless the program that builds and runs images is installed."""
    if not shutil.which(engine):
        sys.exit(
            f"There is no {engine} here, which builds and runs the images. Install it (apt-get install podman), "
            "or name another with --engine or QINGLAN_ENGINE."
        )


def _push(name: str, engine: str, tag: str, where: str) -> Built:
    with tempfile.NamedTemporaryFile("r") as digest:
        _show([engine, "push", "--digestfile", digest.name, tag, f"{where}:{VERSION}"])
        return Built(name, where, digest.read().strip())


def _show(command: Sequence[str]) -> None:
    if code := subprocess.run(command, check=False).returncode:
        sys.exit(f"{command[0]} {command[1]} ended with {code}; what it said is above.")


def _engine(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def _committed_tree() -> Iterator[str]:
    """A folder with the last commit's files, as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(_git_bytes("archive", "--format=tar", "HEAD"))) as tree:
            tree.extractall(folder, filter="data")
        yield folder


def _git_bytes(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


def _git(*words: str) -> str:
    return _git_bytes(*words).decode().strip()


def _committed(path: str) -> bytes:
    return _git_bytes("show", f"HEAD:{path}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m images.building", description="Build the container images.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all that a release is made of when none is named")
    parser.add_argument("--engine", default=os.environ.get("QINGLAN_ENGINE", "podman"))
    parser.add_argument("--base", default=BASE)
    parser.add_argument("--push", default="", metavar="REGISTRY/PREFIX", help="push there, and pin what it answers")
    arguments = parser.parse_args()
    names = arguments.names or list(NAMES)
    if unknown := sorted(set(names) - {*NAMES, *WITH_STAND_INS}):
        parser.error(f"no such image: {', '.join(unknown)}; there are {', '.join((*NAMES, *WITH_STAND_INS))}")
    need_engine(arguments.engine)
    base, built = base_digest(arguments.engine, arguments.base), []
    for name in NAMES:
        if name not in names:
            continue
        started = time.monotonic()
        built.append(build(name, arguments.engine, arguments.base, base, arguments.push))
        print(f"{built[-1].reference}  {time.monotonic() - started:.0f} s", flush=True)
        RELEASE.parent.mkdir(parents=True, exist_ok=True)
        RELEASE.write_text(with_images(RELEASE.read_text() if RELEASE.is_file() else "", built), encoding="utf-8")
    for name in WITH_STAND_INS:
        if name in names:
            build_stand_ins(name, arguments.engine)
    if not arguments.push:
        print("Not pushed: these digests are of this machine's own storage. A release is built with --push.")
    print("\n".join(compile_options(built)))


if __name__ == "__main__":
    main()
