#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ./dev test: the tests of every preset that CI has. Part of ./dev, which sources it.

# Release first: with the GPU plug-in, where that can be built.
presets_to_test() {
  local obstacle
  obstacle=$(cuda_obstacle)
  if [[ -z $obstacle ]]; then
    echo cuda asan tsan
  else
    say "the GPU plug-in is left out, and listed as skipped below: $obstacle" >&2
    echo release asan tsan
  fi
}

# need_test_packages [package]...: those named, too.
need_test_packages() {
  need_packages "${BUILD_PACKAGES[@]}" "${CACHE_PACKAGES[@]}" "${DATA_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "$@"
}

# test_build [preset]: what ./dev test builds for it, or for the first of those that it tests.
test_build() {
  local preset=${1:-}
  need_test_packages "${TORCH_PACKAGES[@]}"
  if [[ -z $preset ]]; then read -r preset _ < <(presets_to_test); fi
  use_compiler_cache
  build_for_tests "$preset"
}

# run_tests <preset> [ctest flag]...: more tests at a time than there are cores, since most of them wait for
# processes and deadlines; one that computes or measures takes several of ctest's places (PROCESSORS). Those that were
# late are tried again, alone, when the others are through.
run_tests() {
  local start=$SECONDS result=0
  say "test build/$1"
  python3 -B test/second_tries.py first "build/$1" ctest --preset "$1" --parallel "$((2 * $(nproc)))" "${@:2}" |
    tee "build/$1/test.log" || result=$?
  python3 -B test/second_tries.py again "build/$1" || result=$?
  say "the tests of build/$1 took $((SECONDS - start)) s"
  return "$result"
}

# Ends the build in the background, and all that it has started, if it is still there.
end_background_build() {
  if [[ -n ${background_build:-} ]]; then kill -TERM -- "-$background_build" 2>/dev/null || true; fi
}

start_background_build() {
  say "build build/$1 meanwhile, with what the tests leave of the cores"
  setsid nice -n 19 ./dev test-build "$1" >"build/$1.build.log" 2>&1 &
  background_build=$!
}

# finish_background_build <preset>
finish_background_build() {
  local start=$SECONDS
  if ! wait "$background_build"; then
    background_build=
    tail -n 100 "build/$1.build.log"
    die "build/$1 failed; all it said is in build/$1.build.log"
  fi
  background_build=
  say "wait for the rest of build/$1 took $((SECONDS - start)) s"
}

# What ccache found, in one line.
compiler_cache_report() {
  if [[ -s ${CCACHE_STATSLOG:-} ]]; then
    awk '/^(direct|preprocessed)_cache_hit$/ { ++hits } /^cache_miss$/ { ++misses } END {
      printf "==> ccache: %d of %d compilations were there\n", hits, hits + misses }' "$CCACHE_STATSLOG"
  fi
}

# test_presets [full] [preset]: the next preset is built while the tests of one wait. The last lines are
# ctest's summary of the first, which has all kinds of tests; one that fails does not hide what the others find.
test_presets() {
  local presets i result=0 flags=(--label-exclude '^long$')
  if [[ ${1:-} == full ]]; then
    need_packages "${FULL_PACKAGES[@]}"
    flags=()
    shift
  fi
  if (($# > 0)); then check_preset "$1"; fi
  need_test_packages "${TORCH_PACKAGES[@]}"
  # Where several sources are compiled as one, a source may lack what another has.
  if ((${#flags[@]} == 0)); then timed test_build debug; fi
  if (($# > 0)); then
    need_preset "$1"
    presets=("$1")
  else
    read -ra presets < <(presets_to_test)
  fi
  mkdir -p build
  if [[ -z ${CCACHE_STATSLOG:-} ]]; then
    export CCACHE_STATSLOG=$PWD/build/ccache.log
    rm -f "$CCACHE_STATSLOG"
  fi
  trap end_background_build EXIT
  timed test_build "${presets[0]}"
  for i in "${!presets[@]}"; do
    if ((i + 1 < ${#presets[@]})); then start_background_build "${presets[i + 1]}"; fi
    run_tests "${presets[i]}" "${flags[@]}" || result=$?
    if ((i + 1 < ${#presets[@]})); then finish_background_build "${presets[i + 1]}"; fi
  done
  compiler_cache_report
  test_summary "${presets[@]}"
  return "$result"
}

# test_summary [preset]...: ctest's summaries of the last run; that of the first preset, which has all kinds of tests,
# comes last, behind a line for each second try in any of them.
test_summary() {
  local presets=("$@") i
  if (($# == 0)); then read -ra presets < <(presets_to_test); fi
  for ((i = ${#presets[@]} - 1; i >= 0; --i)); do
    say "once more, of build/${presets[i]}"
    if ((i == 0)); then python3 -B test/second_tries.py lines "${presets[@]/#/build/}"; fi
    sed -n '/tests passed, /,$p' "build/${presets[i]}/test.log"
  done
}
