#!/bin/bash
# venv.sh VENV WHAT - the virtual environment with WHAT ("." or ".[dev]") installed editable, in tested versions.
set -eu
venv=$1 what=$2

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "redmesh: python3 is older than 3.11: $(python3 --version)" >&2; exit 1
fi

# Debian cuts ensurepip out of python3 and puts it into python3-venv.
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
  package=python3-venv
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "redmesh: fetching $package" >&2
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -o DPkg::Lock::Timeout=300 update && \
      apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$package"; } >/dev/null
  else
    echo "redmesh: python3 lacks the venv module; run: sudo apt-get install -y $package" >&2; exit 1
  fi
fi

# Built aside and ready only when whole, so that an interrupted make is simply begun again.
[ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 || { rm -rf "$venv"; python3 -m venv "$venv"; }
# Old Pythons put setuptools there, whose .pth file every start would run.
"$venv/bin/python" -m pip uninstall -qq --disable-pip-version-check -y setuptools 2>/dev/null || true
echo "redmesh: installing into $venv (once; about a minute, more on a slow network)" >&2
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-input -c constraints.txt -e "$what"
"$venv/bin/python" -m compileall -q agents console db redmesh simulated
echo "redmesh: installed in $SECONDS s" >&2
touch "$venv/.ready"
if [ "$what" = '.[dev]' ]; then touch "$venv/.dev"; fi
