#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In a new Debian, with the packages in /root/packages and a project beside this script: installs, runs programs on two
# ranks, upgrades, removes, and looks for what is left.
set -eu
cd "$(dirname "$0")"
export DEBIAN_FRONTEND=noninteractive
packages=/root/packages

now() { date +%s.%N; }
since() { echo "$1 $(now)" | awk '{ printf "%.1f", $2 - $1 }'; }
apt() { apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >apt.log 2>&1 || { tail -n 20 apt.log; exit 1; }; }
must_say() { # <text> <command>...
  text=$1
  shift
  "$@" >said.log 2>&1 || { cat said.log; exit 1; }
  grep -q -e "$text" said.log || { cat said.log; echo "'$*' did not say '$text'"; exit 1; }
}
left() { find /etc /usr /opt /root/.cache /var/lib/dpkg/info -iname '*ronde*' -not -name ronde-fresh 2>/dev/null || true; }

apt update
if [ -n "$(left)" ]; then echo "there is a Ronde already: $(left)"; exit 1; fi

start=$(now)
apt install "$packages"/libronde0*.deb "$packages"/libronde-mpi_*.deb "$packages"/ronde-tools_*.deb \
  "$packages"/python3-ronde_*.deb
installed=$(since "$start")
must_say 'rank 1: 2 ranks, sum 3' ronderun -np 2 python3 first.py
echo "python: $installed s to install, $(since "$start") s to the first allreduce"
must_say '^0\.1\.0$' python3 -c 'import importlib.metadata; print(importlib.metadata.version("ronde"))'
# No compiler and no header came along.
if dpkg -s libronde-dev g++ libopenmpi-dev 2>/dev/null | grep -q '^Status: install ok installed'; then
  echo "a program needs the development files"
  exit 1
fi
must_say libronde.so.0 ldd /usr/bin/ronde-perf
must_say '2 ranks' ronderun -np 2 ronde-perf -b 1K -e 1K

apt install g++ cmake make
start=$(now)
apt install "$packages"/libronde-dev_*.deb "$packages"/libronde-ucx_*.deb
cmake -S . -B build >cmake.log 2>&1 || { cat cmake.log; exit 1; }
must_say Built cmake --build build
must_say 'rank 1: 2 ranks, sum 3' ronderun -np 2 build/ranks
must_say 'rank 0: 2 ranks, sum 3' ronderun -np 2 --transport ucx build/ranks
echo "C++: $(since "$start") s from its packages to a program on 2 ranks"

apt install python3-mpi4py
must_say 'go through Ronde' ronderun -np 2 --accelerate-mpi python3 stock.py
grep -q 'rank 1: sum 3' said.log

apt install "$packages"/next/*.deb
# shellcheck disable=SC2016  # dpkg-query fills in
must_say '-2$' dpkg-query -W -f '${Version}\n' libronde0.1
must_say 'rank 0: 2 ranks, sum 3' ronderun -np 2 python3 first.py
# shellcheck disable=SC2016  # dpkg-query fills in
echo "upgraded: $(dpkg-query -W -f '${Package} ${Version}, ' '*ronde*')"

apt purge '*ronde*'
if [ -n "$(left)" ]; then
  echo "removing leaves:"
  left
  exit 1
fi
echo "removed: nothing is left"
