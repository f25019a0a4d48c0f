#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <c++> <prefix> <work folder>: a Work that is dropped is a warning of every compiler.
set -eu
cxx=$1 prefix=$2 work=$3
rm -rf "$work"
mkdir -p "$work"

# compile <name> <statement>: whether it compiles with that warning as an error.
compile() {
  cat > "$work/$1.cc" <<SOURCE
#include <ronde/ronde.hpp>
#include <span>
#include <vector>
void step(ronde::Engine& engine, std::vector<float>& data) { $2; }
SOURCE
  "$cxx" -std=c++20 -Werror=unused-result -fsyntax-only -I"$prefix/include" "$work/$1.cc" 2> "$work/$1.log"
}

for operation in 'allreduce("x", std::span(data))' 'broadcast("x", std::span(data), 0)' \
    'allgather("x", std::span(data))' 'all_to_all("x", std::span(data))' 'barrier()'; do
  compile waited "engine.$operation.wait()" || { cat "$work/waited.log"; exit 1; }
  if compile dropped "engine.$operation"; then
    echo "no warning: engine.$operation"
    exit 1
  fi
  grep -q 'wait() for it' "$work/dropped.log" || { cat "$work/dropped.log"; exit 1; }
done
