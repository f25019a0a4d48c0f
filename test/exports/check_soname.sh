#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_soname.sh <library> <ronde.h>: fails unless the soname has the minor version while the major one
# is 0, since a minor version may break the ABI then.
set -eu

number() { sed -n "s/^#define RONDE_VERSION_$1 \([0-9]*\)$/\1/p" "$2"; }
major=$(number MAJOR "$2")
wanted=libronde.so.$major
if [ "$major" = 0 ]; then wanted=$wanted.$(number MINOR "$2"); fi
found=$(readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]$/\1/p')
if [ "$found" != "$wanted" ]; then
  echo "$1 has the soname '$found', expected '$wanted'"
  exit 1
fi
echo "the soname is $found"
