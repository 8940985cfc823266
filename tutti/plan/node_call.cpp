#include "tutti/plan/node_call.h"

namespace tutti::graph {
namespace {

class NoMemory final : public StoragePlaceholder {
 public:
  NoMemory() : StoragePlaceholder(StorageState::traced) {}
  [[noreturn]] void refuse_data() const override {
    throw InternalError(
        "a facet of an op read the elements of a tensor that has none while its call was compiled or run in blocks; "
        "please report this with the op");
  }
};

}  // namespace

std::vector<Tensor> stand_ins(std::span<const Value> values, const Graph& graph) {
  std::vector<Tensor> tensors;
  for (const Value& v : values) {
    const Buffer& b = graph.buffers[static_cast<size_t>(v.buffer)];
    auto storage = StorageRef::adopt(Storage::without_memory(b.nbytes, b.device, std::make_unique<NoMemory>()));
    tensors.push_back(Tensor::over(std::move(storage), v.sizes, v.strides, v.offset, v.dtype));
  }
  return tensors;
}

}  // namespace tutti::graph
