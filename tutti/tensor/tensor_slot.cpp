#include "tutti/tensor/tensor_slot.h"

#include <utility>

namespace tutti {
namespace {

thread_local SlotReads* g_reads = nullptr;

}  // namespace

SlotReads* SlotReads::current() { return g_reads; }

SlotReads* SlotReads::set_current(SlotReads* reads) { return std::exchange(g_reads, reads); }

Tensor read_slot(const std::shared_ptr<const TensorSlot>& slot) {
  return g_reads == nullptr ? slot->held() : g_reads->read(slot);
}

}  // namespace tutti
