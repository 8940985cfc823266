// ForkGuard: tells an object whether it is in the process that made it, or in the copy that a fork()ed child has. A
// child inherits memory and descriptors but no threads, and its parent goes on using what it shares with others:
// connections, pages of other ranks, MPI. So what belongs to one rank of a job refuses calls in a child, and leaves
// everything alone when it is destroyed there. Any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

namespace tutti {

class ForkGuard {
 public:
  ForkGuard();
  bool is_in_child() const noexcept { return made_ != forks_.load(std::memory_order_relaxed); }
  // UsageError in a child. `what` names the object: "group 'dp'".
  void check(std::string_view what) const;
  std::string text(std::string_view what) const;  // of that error
  // For destructors in a child: keeps, until the process ends, what would disturb the parent or wait for its threads
  // when it is destroyed.
  static void keep(std::shared_ptr<const void> object);

 private:
  static inline std::atomic<unsigned> forks_{0};  // between the first process that has the library and this one
  unsigned made_;
  pid_t owner_;
};

}  // namespace tutti
