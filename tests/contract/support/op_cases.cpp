#include "tests/contract/support/op_cases.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tutti/core/hash.h"
#include "tutti/devices/mock/mock_device.h"
#include "tutti/devices/mock/mock_engine.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/tensor/device_copy.h"

namespace tutti::testing {
namespace {

// One unit in the last place, relative.
double last_place(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-7;
    case DType::f16:
      return 0x1p-10;
    case DType::f8e4m3fn:
      return 0x1p-3;
    case DType::f8e5m2:
      return 0x1p-2;
    default:
      return 0;
  }
}

std::string where(const Tensor& t, int64_t index) {
  std::string text;
  for (int d = t.ndim() - 1; d >= 0; --d) {
    text = fmt::format("{}{}{}", index % t.extent(d), text.empty() ? "" : ", ", text);
    index /= t.extent(d);
  }
  return "[" + text + "]";
}

std::string shape_difference(const Tensor& actual, const Tensor& expected) {
  if (actual.dtype() == expected.dtype() && actual.extents() == expected.extents()) return "";
  return fmt::format("{} instead of {}", describe(actual), describe(expected));
}

}  // namespace

std::vector<const OpDef*> all_ops() { return {op_table().begin(), op_table().end()}; }

std::vector<const OpDef*> ops_where(bool (*condition)(const OpDef&)) {
  std::vector<const OpDef*> result;
  for (const OpDef* op : op_table()) {
    if (condition(*op)) result.push_back(op);
  }
  return result;
}

std::vector<Tensor> dense_copies(std::span<const Tensor> inputs) {
  std::vector<Tensor> copies;
  for (const Tensor& t : inputs) {
    copies.push_back(Tensor::empty(t.extents(), t.dtype()));
    copy_elements(copies.back(), t);
  }
  return copies;
}

std::vector<Tensor> gapped_copies(std::span<const Tensor> inputs) {
  std::vector<Tensor> copies;
  for (const Tensor& t : inputs) copies.push_back(facets::strided_copy(t));
  return copies;
}

Device contract_device() {
  static const char* const name = std::getenv("TUTTI_CONTRACT_DEVICE");
  if (name == nullptr) return kCpu;
  const Device device = device_from_string(name);
  if (device.kind == DeviceKind::mock) {
    static MockDevice mock(1);
    static MockEngine engine;
  }
  return device;
}

std::vector<Tensor> moved_to(Device device, std::span<const Tensor> tensors) {
  std::vector<Tensor> moved;
  for (const Tensor& t : tensors) moved.push_back(t.defined() ? to_device(t, device) : t);
  return moved;
}

std::vector<Tensor> run_on(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs) {
  std::vector<Tensor> outputs(static_cast<size_t>(op.num_outputs));
  const std::vector<Tensor> own = moved_to(contract_device(), inputs);
  run_eager({op, own, attrs}, outputs);
  return moved_to(kCpu, outputs);
}

std::vector<Tensor> reference_on(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs) {
  std::vector<Tensor> outputs(static_cast<size_t>(op.num_outputs));
  run_reference({op, inputs, attrs}, outputs);
  return outputs;
}

std::vector<Tensor> run_op(const OpDef& op, const Sample& sample) {
  // Samples keep their strides, which some are about; only a target that is written is copied.
  std::vector<Tensor> inputs = sample.inputs;
  for (const int8_t written : op.writes) {
    if (written < 0) continue;
    const Tensor& target = inputs[static_cast<size_t>(written)];
    const bool dense = target.is_contiguous();
    inputs[static_cast<size_t>(written)] = dense ? dense_copies({&target, 1})[0] : facets::strided_copy(target);
  }
  return run_on(op, inputs, sample.attrs);
}

std::string difference(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance) {
  if (const std::string shapes = shape_difference(actual, expected); !shapes.empty()) return shapes;
  const DType dtype = actual.dtype();
  double allowed = dtype == DType::f64 ? tolerance.f64 : is_floating(dtype) ? tolerance.f32 : 0.0;
  const double relative = allowed > 0 ? std::max(allowed, last_place(dtype)) : 0;
  std::string text;
  const Tensor both[] = {actual, expected};
  facets::for_each_element(actual.extents(), both, [&](int64_t index, const int64_t* at) {
    if (!text.empty()) return;
    if (!is_floating(dtype)) {
      const int64_t x = facets::read_int64(actual, at[0]), y = facets::read_int64(expected, at[1]);
      if (x != y) text = fmt::format("{} is {}, expected {}", where(actual, index), x, y);
      return;
    }
    const double x = facets::read_double(actual, at[0]), y = facets::read_double(expected, at[1]);
    if ((std::isnan(x) && std::isnan(y)) || x == y) return;
    if (std::isfinite(y) && std::fabs(x - y) <= allowed + relative * std::fabs(y)) return;
    text = fmt::format("{} is {} ({:a}), expected {} ({:a}); accepted is {} + {} |y|", where(actual, index), x, x, y, y,
                       allowed, relative);
  });
  return text;
}

std::string bit_difference(const Tensor& actual, const Tensor& expected) {
  if (const std::string shapes = shape_difference(actual, expected); !shapes.empty()) return shapes;
  const int64_t item = itemsize(actual.dtype());
  std::string text;
  const Tensor both[] = {actual, expected};
  facets::for_each_element(actual.extents(), both, [&](int64_t index, const int64_t* at) {
    const char* x = static_cast<const char*>(actual.raw_data()) + at[0] * item;
    const char* y = static_cast<const char*>(expected.raw_data()) + at[1] * item;
    if (!text.empty() || std::memcmp(x, y, static_cast<size_t>(item)) == 0) return;
    text = fmt::format("{} is {:a}, expected the bits of {:a}", where(actual, index), load_as_double(x, actual.dtype()),
                       load_as_double(y, actual.dtype()));
  });
  return text;
}

uint64_t hash_of(const Tensor& t) {
  const Tensor dense = to_contiguous(t);
  const std::string shape = fmt::format("{} {}", name_of(t.dtype()), t.extents());
  return hash64(dense.raw_data(), static_cast<size_t>(dense.nbytes()), hash64(shape));
}

}  // namespace tutti::testing
