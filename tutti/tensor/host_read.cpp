#include "tutti/tensor/host_read.h"

#include <utility>

namespace tutti {
namespace {

thread_local HostReads* current_reads = nullptr;

}  // namespace

HostReads* HostReads::current() { return current_reads; }
HostReads* HostReads::set_current(HostReads* reads) { return std::exchange(current_reads, reads); }

Tensor host_readable(const Tensor& t) {
  before_host_read(t);
  return current_reads == nullptr ? t : current_reads->elements_of(t);
}

}  // namespace tutti
