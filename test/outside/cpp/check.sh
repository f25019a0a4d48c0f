#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <cmake> <c++> <prefix> <work folder>: an outside C++ project, with find_package(ronde).
set -eu
cmake=$1 cxx=$2 prefix=$3 work=$4
here=$(dirname "$0")

rm -rf "$work"
"$cmake" -S "$here" -B "$work" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix"
case $(grep '^ronde_DIR:' "$work/CMakeCache.txt") in
  *"$prefix"*) ;;
  *) echo "find_package found another ronde than $prefix"; exit 1 ;;
esac
"$cmake" --build "$work"
"$work/job_of_one"
