#include "tutti/job/host/host_identity.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>

namespace tutti::comm {

std::string host_identity() {
  std::string identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity;
  char target[PATH_MAX];
  for (const char* name : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    const ssize_t length = readlink(name, target, sizeof target);
    identity += ' ';
    if (length > 0) identity.append(target, static_cast<size_t>(length));
  }
  if (const char* chosen = std::getenv("TUTTI_HOST_ID"); chosen != nullptr) identity += ' ' + std::string(chosen);
  return identity;
}

}  // namespace tutti::comm
