#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <cmake> <cc> <c++> <source folder> <libmpi.so> <work folder>: a project that has Ronde as a part
# of it needs neither Boost nor GoogleTest and gets no tests; installed, libronde_mpi.so finds an MPI that is
# outside the loader's path. Configures only: building it is what all the other tests do.
set -eu
cmake=$1 cc=$2 cxx=$3 source=$4 mpi=$5 work=$6
here=$(dirname "$0")

rm -rf "$work"
mkdir -p "$work/mpi"
cp -L "$mpi" "$work/mpi/libmpi.so"
"$cmake" -S "$here" -B "$work/build" -G Ninja -DRONDE_SOURCE="$source" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON \
  -DMPI_C_LIB_NAMES=mpi -DMPI_mpi_LIBRARY="$work/mpi/libmpi.so"

found=$("$cmake" --build "$work/build" --target help | grep -E '(ronderun|_test|gtest)' || true)
if [ -n "$found" ]; then
  echo "a subproject is given these targets: $found"
  exit 1
fi
if ! (cd "$work/build" && "$(dirname "$cmake")/ctest" -N) | grep -q 'Total Tests: 0'; then
  echo "a subproject is given tests"
  exit 1
fi
grep -q -- '-std=[a-z+]*20' "$work/build/build.ninja" || { echo "no C++20 for the facade"; exit 1; }
install=$work/build/ronde/cmake_install.cmake
if ! grep -q "NEW_RPATH \"$work/mpi\"" "$install"; then
  echo "an installed libronde_mpi.so does not look for MPI in $work/mpi:"
  grep RPATH "$install" || true
  exit 1
fi
