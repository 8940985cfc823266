#include "tutti/ops/engine/facets.h"

#include <algorithm>
#include <cmath>

#include "tutti/ops/engine/loop_nest.h"

namespace tutti::facets {

Shape broadcast_inputs(const OpCall& call) {
  Shape sizes = call.inputs[0].sizes();
  const auto is_same = [](SymInt a, SymInt b) { return a.raw() == b.raw(); };
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    const Shape& next = call.inputs[i].sizes();
    if (!std::equal(sizes.begin(), sizes.end(), next.begin(), next.end(), is_same))
      sizes = broadcast_shapes(sizes, next, call.op.name);
  }
  return sizes;
}

DType promote_inputs(const OpCall& call) {
  DType dtype = call.inputs[0].dtype();
  for (size_t i = 1; i < call.inputs.size(); ++i) dtype = promote(dtype, call.inputs[i].dtype());
  return dtype;
}

void infer_pointwise(const OpCall& call, OutputMetas& out) { out.add(promote_inputs(call), broadcast_inputs(call)); }

void for_each_element(const Extents& sizes, std::span<const Tensor> tensors,
                      const std::function<void(int64_t, const int64_t*)>& visit) {
  std::vector<Extents> strides;
  for (const Tensor& t : tensors) strides.push_back(broadcast_strides(t, sizes));
  std::vector<int64_t> offsets(tensors.size());
  const int64_t n = numel_of(sizes);
  for (int64_t index = 0; index < n; ++index) {
    std::fill(offsets.begin(), offsets.end(), 0);
    int64_t rest = index;
    for (int d = sizes.ndim() - 1; d >= 0; --d) {
      const int64_t at = rest % sizes[d];
      rest /= sizes[d];
      for (size_t k = 0; k < tensors.size(); ++k) offsets[k] += at * strides[k][d];
    }
    visit(index, offsets.data());
  }
}

static char* element(const Tensor& t, int64_t offset) {
  return static_cast<char*>(t.raw_data()) + offset * itemsize(t.dtype());
}
double read_double(const Tensor& t, int64_t offset) { return load_as_double(element(t, offset), t.dtype()); }
int64_t read_int64(const Tensor& t, int64_t offset) { return load_as_int64(element(t, offset), t.dtype()); }
void write_double(const Tensor& t, int64_t offset, double value) {
  store_from_double(element(t, offset), t.dtype(), value);
}
void write_int64(const Tensor& t, int64_t offset, int64_t value) {
  store_from_int64(element(t, offset), t.dtype(), value);
}

std::vector<double> values(const Tensor& t, const Extents& sizes) {
  std::vector<double> result;
  result.reserve(static_cast<size_t>(numel_of(sizes)));
  const Tensor list[] = {t};
  for_each_element(sizes, list, [&](int64_t, const int64_t* at) { result.push_back(read_double(t, at[0])); });
  return result;
}

void reference_map(const OpCall& call, std::span<const Tensor> outputs, const std::function<double(const double*)>& fn,
                   const std::function<int64_t(const int64_t*)>& integer_fn) {
  bool integer = integer_fn != nullptr && !is_floating(outputs[0].dtype());
  for (const Tensor& t : call.inputs) integer = integer && !is_floating(t.dtype());
  std::vector<double> values(call.inputs.size());
  std::vector<int64_t> integers(call.inputs.size());
  for_each_element(outputs[0].extents(), call.inputs, [&](int64_t index, const int64_t* offsets) {
    if (integer) {
      for (size_t i = 0; i < call.inputs.size(); ++i) integers[i] = read_int64(call.inputs[i], offsets[i]);
      write_int64(outputs[0], index, integer_fn(integers.data()));
    } else {
      for (size_t i = 0; i < call.inputs.size(); ++i) values[i] = read_double(call.inputs[i], offsets[i]);
      write_double(outputs[0], index, fn(values.data()));
    }
  });
}

std::string pointwise_sharding(const OpCall& call, const char* classes, uint32_t opaque) {
  const Shape full = broadcast_inputs(call);
  const auto letters = [&](const Shape& sizes) {
    std::string text;
    for (int d = 0; d < sizes.ndim(); ++d) {
      const int at = full.ndim() - sizes.ndim() + d;
      const bool repeats = sizes[static_cast<size_t>(d)] == 1 && full[static_cast<size_t>(at)] != 1;
      text += repeats ? '1' : static_cast<char>('a' + at);
    }
    return text;
  };
  std::string text;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    text += fmt::format("{}x{}[{}] ", opaque >> i & 1 ? "#" : "", i, letters(call.inputs[i].sizes()));
  return fmt::format("{}-> y[{}] | {}", text, letters(full), classes);
}

Tensor sample_tensor(uint64_t seed, const Extents& sizes, DType dtype, double lo, double hi) {
  Tensor t = Tensor::empty(sizes, dtype);
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (int64_t i = 0; i < t.numel(); ++i) {
    state += 0x9E3779B97F4A7C15ull;  // splitmix64
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    const double value = lo + (hi - lo) * static_cast<double>(z >> 11) * 0x1p-53;
    if (is_floating(dtype)) write_double(t, i, value);
    else write_int64(t, i, static_cast<int64_t>(std::floor(value)));
  }
  return t;
}

Tensor strided_copy(const Tensor& t) {
  Extents sizes = t.extents();
  for (int64_t& s : sizes) s *= 2;
  Tensor large = Tensor::empty(sizes, t.dtype());
  Extents strides = large.strides();
  for (int64_t& s : strides) s *= 2;
  Tensor view = large.view_as(t.extents(), strides, 0);
  copy_elements(view, t);
  return view;
}

std::vector<Sample> pointwise_samples(int arity, std::span<const DType> dtypes, double lo, double hi,
                                      const Attrs& attrs) {
  std::vector<Sample> samples;
  for (const DType dtype : dtypes) {
    const auto inputs = [&](std::vector<Extents> sizes, bool strided) {
      std::vector<Tensor> result;
      for (int i = 0; i < arity; ++i) {
        const Extents& s = sizes[static_cast<size_t>(i) % sizes.size()];
        Tensor t = sample_tensor(17 + static_cast<uint64_t>(i), s, dtype, lo, hi);
        result.push_back(strided ? strided_copy(t) : t);
      }
      return result;
    };
    const std::string suffix(name_of(dtype));
    samples.push_back({"odd_" + suffix, inputs({{3, 5, 7}}, false), attrs});
    samples.push_back({"strided_" + suffix, inputs({{3, 19}}, true), attrs});
    samples.push_back({"scalar_" + suffix, inputs({Extents{}}, false), attrs});
    samples.push_back({"empty_" + suffix, inputs({{2, 0, 3}}, false), attrs});
    if (arity > 1) samples.push_back({"broadcast_" + suffix, inputs({{4, 1, 33}, {5, 1}, {33}}, false), attrs});
  }
  return samples;
}

}  // namespace tutti::facets
