// SPDX-License-Identifier: Apache-2.0
// Runs a command, and all that it starts, where pidfd_open fails as in old kernels (ENOSYS) or
// under the filter of a container (EPERM).
//
// usage: no_pidfd ENOSYS|EPERM COMMAND [ARGUMENT...]
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace {

constexpr int kUsage = 2;
constexpr int kSkipped = 77;

bool install_filter(unsigned error) {
  std::array<sock_filter, 4> program{{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_pidfd_open},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return kUsage;
  const bool enosys = std::strcmp(argv[1], "ENOSYS") == 0;
  if (!enosys && std::strcmp(argv[1], "EPERM") != 0) return kUsage;
  if (!install_filter(enosys ? ENOSYS : EPERM)) {
    std::perror("no_pidfd: this kernel takes no filter");
    return kSkipped;
  }
  errno = 0;
  if (syscall(SYS_pidfd_open, getpid(), 0) >= 0 || errno != (enosys ? ENOSYS : EPERM)) {
    std::fputs("no_pidfd: the filter does not hold\n", stderr);
    return kUsage;
  }
  execvp(argv[2], argv + 2);
  std::perror(argv[2]);
  return kUsage;
}
