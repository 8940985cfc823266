#include "tutti/codegen/kernel.h"

#include <bit>
#include <type_traits>

namespace tutti::codegen {
namespace {

// Fields one by one: structs have padding, whose bytes must not reach a key.
class KeyWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void put_count(size_t count) { put(static_cast<uint32_t>(count)); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace

std::string KernelSpec::key() const {
  KeyWriter w;
  w.put(kind);
  for (const auto* operands : {&inputs, &outputs}) {
    w.put_count(operands->size());
    for (const OperandSpec& operand : *operands) {
      w.put(operand.dtype);
      w.put(operand.inner);
      w.put(operand.index);
      w.put(operand.along_reduced);
    }
  }
  w.put_count(nodes.size());
  for (const ExprNode& node : nodes) {
    w.put(node.op);
    w.put(node.dtype);
    w.put(node.index);
    for (int k = 0; k < arity_of(node.op); ++k) w.put(node.operands[k]);
    w.put(std::bit_cast<uint64_t>(node.f));
    w.put(node.i);
  }
  w.put_count(reductions.size());
  for (const Reduction& reduction : reductions) {
    w.put(reduction.op);
    w.put(reduction.tree);
    w.put(reduction.value);
  }
  w.put_count(results.size());
  for (const int32_t result : results) w.put(result);
  return w.take();
}

}  // namespace tutti::codegen
