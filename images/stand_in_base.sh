#!/usr/bin/env bash
# Where no registry can be reached: Debian's own Python 3.11, imported under the base image's name.
#   sudo images/stand_in_base.sh docker.io/library/python:3.11-slim-bookworm
# DEBIAN_MIRROR names another mirror than debootstrap's own. It is for trying a build, never for a release: its digest is this machine's own.
set -euo pipefail

name="${1:?name of the base image that is stood in for}"
command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "debootstrap makes device nodes: run this as root" >&2; exit 1; }

root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
# python3-venv brings ensurepip, so the build stage gets its pip there and the final stage has none.
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$root.log" 2>&1 \
  || { echo "debootstrap failed; the end of $root.log:" >&2; tail -n 5 "$root.log" >&2; exit 1; }
rm -f "$root.log" "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*_*
tar -C "$root" --numeric-owner -c . | podman import --quiet \
  --change 'CMD ["python3"]' --change 'LABEL dev.qinglan.stand-in=true' - "$name"
