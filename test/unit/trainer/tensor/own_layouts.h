// SPDX-License-Identifier: Apache-2.0
// Whether oneDNN keeps images in layouts of its own here: on processors without AVX2 it has none.
#pragma once

#include <oneapi/dnnl/dnnl.h>

namespace ronde::trainer {

inline bool has_own_layouts() { return dnnl_get_effective_cpu_isa() >= dnnl_cpu_isa_avx2; }

}  // namespace ronde::trainer
