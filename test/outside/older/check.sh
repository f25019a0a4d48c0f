#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <cc> <prefix> <library folder> <work folder>: a program compiled with the header of an older Ronde,
# each of whose structs lacks the youngest field, runs with the library of today.
set -eu
cc=$1 prefix=$2 libdir=$3 work=$4
here=$(dirname "$0")

rm -rf "$work"
mkdir -p "$work/include/ronde"
header=$prefix/include/ronde/ronde.h
older=$work/include/ronde/ronde.h
# The last field of a struct is the last line with a semicolon before the one that closes it.
awk '
  { lines[NR] = $0 }
  /^} ronde_(engine_options|request|statistics);/ { drop[field] = 1 }
  !/^}/ && /;/ { field = NR }
  END { for (i = 1; i <= NR; ++i) if (!(i in drop)) print lines[i] }
' "$header" >"$older"
dropped=$(($(wc -l <"$header") - $(wc -l <"$older")))
if [ "$dropped" != 3 ]; then
  echo "expected to drop the last field of 3 structs, not of $dropped:"
  diff "$header" "$older" || true
  exit 1
fi
"$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$work/include" "$here/older.c" -o "$work/older" \
  -L"$libdir" -lronde -Wl,-rpath,"$libdir"
"$work/older"
