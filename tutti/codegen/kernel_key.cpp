#include "tutti/codegen/kernel_key.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "tutti/core/error.h"

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

class KeyReader {
 public:
  explicit KeyReader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    TUTTI_CHECK(bytes_.size() >= sizeof(T), "the key of a kernel ends early");
    T value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return value;
  }
  // One of the values up to `last`.
  template <class T>
  T get_up_to(T last) {
    const auto value = get<std::underlying_type_t<T>>();
    TUTTI_CHECK(value <= static_cast<std::underlying_type_t<T>>(last), "the key of a kernel holds a value {}", value);
    return static_cast<T>(value);
  }
  template <class Each>
  void for_each(Each each) {
    for (auto count = get<uint32_t>(); count > 0; --count) each();
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

DType get_dtype(KeyReader& r) { return r.get_up_to(DType::boolean); }

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

KernelSpec spec_of_key(std::string_view key) {
  KeyReader r(key);
  KernelSpec spec;
  spec.kind = r.get_up_to(LoopKind::scan);
  for (auto* operands : {&spec.inputs, &spec.outputs}) {
    r.for_each([&] {
      OperandSpec operand{get_dtype(r), r.get_up_to(StrideClass::strided)};
      operand.index = r.get<int8_t>();
      operand.along_reduced = r.get<uint8_t>() != 0;
      operands->push_back(operand);
    });
  }
  r.for_each([&] {
    ExprNode node{r.get_up_to(ScalarOp::stored), get_dtype(r)};
    node.index = r.get<int32_t>();
    for (int k = 0; k < arity_of(node.op); ++k) node.operands[k] = r.get<int32_t>();
    node.f = std::bit_cast<double>(r.get<uint64_t>());
    node.i = r.get<int64_t>();
    spec.nodes.push_back(node);
  });
  r.for_each([&] {
    const auto op = r.get_up_to(ReduceOp::softmax_rest);
    const auto tree = r.get_up_to(TreeKind::aligned);
    spec.reductions.push_back({op, tree, r.get<int32_t>()});
  });
  r.for_each([&] { spec.results.push_back(r.get<int32_t>()); });
  TUTTI_CHECK(r.at_end(), "the key of a kernel goes on behind its end");
  return spec;
}

}  // namespace tutti::codegen
