// SPDX-License-Identifier: Apache-2.0
// The loss of a training run as a picture.
#pragma once

#include <span>
#include <string>

namespace ronde::examples {

// An SVG of the losses by epoch, from 1. Pure.
[[nodiscard]] std::string loss_picture(std::span<const double> losses);

// Writes it to a file. Throws std::runtime_error that names the file.
void plot_losses(const std::string& file, std::span<const double> losses);

}  // namespace ronde::examples
