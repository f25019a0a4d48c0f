// SPDX-License-Identifier: Apache-2.0
// Which of UCX's network devices belong to the network interfaces that the user has chosen.
#pragma once

#include <string>

namespace ronde::collectives::ucx {

// Returns what UCX_NET_DEVICES would be for `interfaces`, names with commas between them
// ("eth0,ib0"): each interface, and before it the ports of the RDMA device that it belongs to
// ("mlx5_0:1"), which UCX prefers where it can use them. class_net: the folder in which the kernel
// shows the interfaces. Thread safety: any thread.
[[nodiscard]] std::string devices_of(const std::string& interfaces,
                                     const std::string& class_net = "/sys/class/net");

}  // namespace ronde::collectives::ucx
