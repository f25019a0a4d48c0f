#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <cmake> <c++> <prefix> <examples> <work folder>: an outside project with the training core, which is built of
# copies of the pages' programs against an installed prefix alone, and run on 1 and 2 ranks.
set -eu
cmake=$1 cxx=$2 prefix=$3 examples=$4 work=$5
here=$(dirname "$0")
export RONDE_START_TIMEOUT_SECONDS=60

rm -rf "$work"
mkdir -p "$work/project"
cp "$here/CMakeLists.txt" "$here/own_sums.cc" "$examples/custom_loop.cc" "$examples/supervised_loop.cc" "$examples/readme_snippet.cc" \
  "$work/project"
# What each installed header includes must be in the prefix, and each may come first.
{
  (cd "$prefix/include" && find ronde/trainer -name '*.h' | sort -r) | sed 's/.*/#include <&>/'
  echo 'int main() {}'
} >"$work/project/every_header.cc"

if grep -rl 'dnnl\.h' "$prefix/include/ronde"; then
  echo "the headers above need oneDNN's, which no installed target finds"
  exit 1
fi

# configure <project> <build folder> [flag]...
configure() {
  project=$1 build=$2
  shift 2
  "$cmake" -S "$project" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_BUILD_TYPE=Release "$@"
}

# Where a library that only the core needs is missing, the package says so; it is not missed without the core.
hidden=-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF
if said=$(configure "$work/project" "$work/hidden" $hidden 2>&1); then
  echo "find_package(ronde COMPONENTS trainer) needs no oneDNN: $said"
  exit 1
fi
case $(echo "$said" | tr -s ' \n' ' ') in
  *"the training core needs oneDNN (libdnnl.so)"*) ;;
  *) echo "find_package(ronde COMPONENTS trainer) without oneDNN said: $said"; exit 1 ;;
esac
configure "$here/../cpp" "$work/without" $hidden

configure "$work/project" "$work/build"
case $(grep '^ronde_DIR:' "$work/build/CMakeCache.txt") in
  *"$prefix"*) ;;
  *) echo "find_package found another ronde than $prefix"; exit 1 ;;
esac
"$cmake" --build "$work/build" --parallel 2
"$work/build/own_sums"
for ranks in 1 2; do
  run="$prefix/bin/ronderun -np $ranks"
  $run "$work/build/custom_loop" --epochs 1 | tee "$work/said"
  grep -q "^ranks=$ranks epoch=1 loss=0\..* accuracy=0\.[789]" "$work/said"
  $run "$work/build/supervised_loop" --logdir "$work/train-$ranks" --epochs 1 | tee "$work/said"
  grep -q '^steps=469 param_hash=' "$work/said"
  $run "$work/build/readme_snippet" | tee "$work/said"
  grep -q '^weight ' "$work/said"
done
