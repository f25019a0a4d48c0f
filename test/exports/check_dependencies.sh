#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_dependencies.sh <libronde.so>: fails if the library needs another one than the C and C++ libraries: MPI, UCX and
# CUDA are the business of plug-ins. The sanitizers add their own.
set -eu

found=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
if [ -z "$found" ]; then
  echo "$1 needs nothing at all: is this the right file?"
  exit 1
fi
others=$(printf '%s\n' "$found" | grep -v -e '^libstdc++\.so' -e '^libm\.so' -e '^libgcc_s\.so' -e '^libc\.so' \
  -e '^ld-linux' -e '^lib[a-z]*san\.so' || true)
if [ -n "$others" ]; then
  echo "$1 needs more than the C and C++ libraries:"
  printf '%s\n' "$others"
  exit 1
fi
echo "$1 needs $(printf '%s' "$found" | tr '\n' ' ')"
