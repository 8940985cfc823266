#include "tutti/ops/pointwise/pointwise.h"

#include "tutti/ops/cast.h"
#include "tutti/ops/sum_to.h"

namespace tutti::pointwise {
namespace {

double as_double(const Tensor& t, int64_t offset, DType compute) {
  if (is_floating(t.dtype())) {
    const double value = facets::read_double(t, offset);
    return compute == DType::f32 ? static_cast<float>(value) : value;
  }
  const int64_t value = facets::read_int64(t, offset);  // one rounding, not one through double
  return compute == DType::f32 ? static_cast<float>(value) : static_cast<double>(value);
}

}  // namespace

void run_map(const ReferenceMap& map, const std::function<double(const double*)>& fn,
             const std::function<int64_t(const int64_t*)>& integer_fn) {
  const bool floating = is_floating(map.compute);
  TUTTI_ASSERT(floating || integer_fn != nullptr, "no integer form for {}", name_of(map.compute));
  std::vector<Tensor> tensors{map.target};
  tensors.insert(tensors.end(), map.inputs.begin(), map.inputs.end());
  const size_t places = map.inputs.size() + (map.scalar ? 1 : 0), scalar_at = static_cast<size_t>(map.scalar_at);
  std::vector<double> values(places);
  std::vector<int64_t> integers(places);
  facets::for_each_element(map.target.extents(), tensors, [&](int64_t, const int64_t* at) {
    size_t place = 0;
    for (size_t i = 0; i < map.inputs.size(); ++i, ++place) {
      if (map.scalar && place == scalar_at) ++place;
      if (floating) values[place] = as_double(map.inputs[i], at[i + 1], map.compute);
      else integers[place] = facets::read_int64(map.inputs[i], at[i + 1]);
    }
    if (map.scalar) {
      const double value = map.scalar->to_double();
      values[scalar_at] = map.compute == DType::f32 ? static_cast<float>(value) : value;
      integers[scalar_at] = map.scalar->to_int64();
    }
    if (floating) facets::write_double(map.target, at[0], fn(values.data()));
    else facets::write_int64(map.target, at[0], integer_fn(integers.data()));
  });
}

codegen::ParamValue param_of(const Scalar& scalar, DType dtype) {
  codegen::ParamValue value{};
  if (is_floating(dtype)) value.f = scalar.to_double();
  else value.i = scalar.to_int64();
  return value;
}

bool is_summed(const Tensor& grad, const OutputMeta& meta) { return !(grad.sizes() == meta.sizes); }

Tensor widened(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) ? cast(x, compute_dtype(x.dtype())) : x;
}

Tensor reduce_like(const Tensor& grad, const OutputMeta& meta) {
  if (!grad.defined()) return grad;
  if (grad.sizes() == meta.sizes) return cast(grad, meta.dtype);
  const Tensor sum = sum_to(grad, meta.sizes);
  return sum.dtype() == compute_dtype(meta.dtype) ? sum : cast(sum, meta.dtype);
}

std::vector<Sample> samples(std::span<const DType> dtypes, std::span<const Range> ranges,
                            std::span<const Range> integer_ranges, const Attrs& attrs) {
  std::vector<Sample> result;
  const auto add = [&](const char* name, DType dtype, std::span<const Extents> sizes, bool strided) {
    Sample sample{fmt::format("{}_{}", name, name_of(dtype)), {}, attrs};
    for (size_t i = 0; i < ranges.size(); ++i) {
      const Range& r = is_floating(dtype) ? ranges[i] : integer_ranges[i];
      const double lo = dtype == DType::boolean ? 0 : dtype == DType::u8 ? std::max(r.lo, 0.0) : r.lo;
      const double hi = dtype == DType::boolean ? 2 : r.hi;
      // Neighbouring seeds give the same values shifted by one: operands that are broadcast would meet ties.
      const Tensor t = facets::sample_tensor(17 + 7919 * i, sizes[i % sizes.size()], dtype, lo, hi);
      sample.inputs.push_back(strided ? facets::strided_copy(t) : t);
    }
    result.push_back(std::move(sample));
  };
  const Extents odd[] = {{3, 5, 7}}, flat[] = {{3, 19}}, one[] = {{1, 1}}, none[] = {{2, 0, 3}}, scalar[] = {Extents{}};
  const Extents broadcast[] = {{4, 1, 33}, {5, 1}, {33}};
  for (const DType dtype : dtypes) add("odd", dtype, odd, false);
  add("strided", dtypes[0], flat, true);
  add("scalar", dtypes[0], scalar, false);
  add("one", dtypes[0], one, false);
  add("empty", dtypes[0], none, false);
  if (ranges.size() > 1) add("broadcast", dtypes[0], broadcast, false);
  return result;
}

}  // namespace tutti::pointwise
