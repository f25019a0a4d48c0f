#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_exports.sh <library>: fails unless every symbol that the library exports is named ronde_*.
set -eu

symbols=$(nm -D --defined-only --format=posix "$1" | cut -d ' ' -f 1)
if ! printf '%s\n' "$symbols" | grep -q '^ronde_'; then
  echo "$1 exports no ronde_* symbol at all"
  exit 1
fi
leaked=$(printf '%s\n' "$symbols" | grep -v '^ronde_[a-z0-9_]*$' || true)
if [ -n "$leaked" ]; then
  echo "$1 exports what is not ronde_*:"
  printf '%s\n' "$leaked"
  exit 1
fi
echo "$1 exports $(printf '%s\n' "$symbols" | wc -l) symbols, all of them ronde_*"
