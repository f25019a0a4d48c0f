# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# ./dev tour: sourced by ./dev.

# tour [flag]...
tour() {
  if asks_for_help "$@"; then
    need_packages python3
    python3 -B test/tour/tour.py --help
    return
  fi
  need_packages "${BUILD_PACKAGES[@]}" "${DATA_PACKAGES[@]}" python3
  configure_release
  compile release strategies custom_loop train_fashion_mnist linear_regression mnist_walkthrough \
    classify_two_classes gan data_formats pipeline tensor_parallel named_workers recommender sheets
  timed python3 -B test/tour/tour.py build/release/bin "$@"
}
