#!/bin/bash
# test.sh PYTHON [TESTS…] - the test suite, after fetching the programs it drives (as root, on Debian).
# No service is ever started: while packages are unpacked, policy-rc.d says no.
set -u
python=$1; shift
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

# Not fetched, for their size (600 MiB together): rustc, golang-go, chromium, PyTorch. Tests that want one of these skip.
declare -A provider=([mariadbd]=mariadb-server [sshd]=openssh-server [ssh-keygen]=openssh-client [tmux]=tmux
  [gcc]='gcc libc6-dev' [readelf]=binutils [gdb]=gdb [strace]=strace [eu-stack]=elfutils [zsh]=zsh [fish]=fish [parallel]=parallel
  [ip]=iproute2 [ss]=iproute2 [ps]=procps [systemd-analyze]=systemd [mpicc.mpich]='mpich libmpich-dev'
  [mpicc.openmpi]='openmpi-bin libopenmpi-dev' [/usr/include/slurm/pmi2.h]='libpmi2-0 libpmi2-0-dev'
  [/usr/lib/python3/dist-packages/mpi4py]=python3-mpi4py [/usr/lib/debug/.build-id]=libc6-dbg)
missing=()
for program in "${!provider[@]}"; do
  # shellcheck disable=SC2206  # several packages for one program are several words
  [ -e "$program" ] || PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || missing+=(${provider[$program]})
done

policy=/usr/sbin/policy-rc.d
fetch() {
  local made=0 status=0
  if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy && made=1; fi
  { apt-get -o DPkg::Lock::Timeout=300 update &&
    apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"; } >/dev/null 2>"${log:=$(mktemp)}" || status=1
  if [ $status -ne 0 ]; then tail -5 "$log" >&2; fi
  rm -f "$log"; if [ $made = 1 ]; then rm -f $policy; fi
  return $status
}

if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "redmesh: fetching ${missing[*]} (no service is started)" >&2
    if fetch "${missing[@]}"; then echo "redmesh: fetched in $SECONDS s" >&2; else
      echo "redmesh: NOT FETCHED: ${missing[*]}; the tests that need them will be SKIPPED" >&2
    fi
  else
    echo "redmesh: MISSING: ${missing[*]}; the tests that need them will be SKIPPED" >&2
    echo "redmesh:   sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
  fi
fi

# Most tests wait for daemons rather than compute, so four share a core. The tests of a file run in one process: each
# that had some would bring up the file's mesh. A list of one's own tests runs one by one.
if [ $# -eq 0 ]; then
  most=16 workers=$((4 * $(nproc))) && [ "$workers" -le $most ] || workers=$most
  set -- -n "$workers" --dist loadfile
  # The tests, and the plugins of pytest, are compiled once, not by each worker (tests/conftest.py).
  collecting=()
  trap 'kill "${collecting[@]}" 2>/dev/null; exit 130' INT TERM HUP  # what runs in the background ignores ^C
  for part in tests/unit '--ignore tests/unit tests'; do
    # shellcheck disable=SC2086  # the part is several words
    env -u PYTHONDONTWRITEBYTECODE "$python" -m pytest --collect-only -qq $part >/dev/null 2>&1 </dev/null &
    collecting+=($!)
  done
  wait
  trap - INT TERM HUP
fi

# stderr into stdout, so that the closing line is the last one wherever both are kept
exec "$python" -m tests.support.second_look "$@" 2>&1 </dev/null
