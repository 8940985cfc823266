#include "tutti/tensor/host_read.h"

#include <atomic>
#include <utility>

namespace tutti {
namespace {

std::atomic<HostReadHook>& installed_hook() {
  static std::atomic<HostReadHook> hook{nullptr};
  return hook;
}

thread_local HostReads* current_reads = nullptr;

}  // namespace

HostReads* HostReads::current() { return current_reads; }
HostReads* HostReads::set_current(HostReads* reads) { return std::exchange(current_reads, reads); }

Tensor host_readable(const Tensor& t) {
  before_host_read(t);
  return current_reads == nullptr ? t : current_reads->elements_of(t);
}

void install_host_read_hook(HostReadHook hook) {
  HostReadHook expected = nullptr;
  TUTTI_ASSERT(installed_hook().compare_exchange_strong(expected, hook), "a hook before host reads is installed already");
}

void before_host_read(const Tensor& t) {
  if (t.stages() == 0) [[likely]] return;
  if (const HostReadHook hook = installed_hook().load(std::memory_order_acquire)) hook(t);
}

}  // namespace tutti
