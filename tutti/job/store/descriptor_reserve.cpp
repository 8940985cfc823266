#include "tutti/job/store/descriptor_reserve.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

namespace tutti::comm {
namespace {

constexpr int kReservedDescriptors = 64;

}  // namespace

bool is_short_of_descriptors(int fd) {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 2 * kReservedDescriptors &&
         static_cast<rlim_t>(fd) + kReservedDescriptors >= limit.rlim_cur;
}

bool allow_more_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, std::max<rlim_t>(limit.rlim_cur * 2, 4096));
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

UniqueFd with_lowest_number(UniqueFd fd) {
  UniqueFd lower(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  return lower ? std::move(lower) : std::move(fd);
}

}  // namespace tutti::comm
