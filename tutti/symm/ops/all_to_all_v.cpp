#include "tutti/symm/ops/all_to_all_v.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tutti/core/error.h"
#include "tutti/symm/ops/published.h"

namespace tutti::comm::symm {
namespace {

constexpr auto sum_of = [](std::span<const int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
};

}  // namespace

AllToAllVResult all_to_all_v(const Tensor& input, std::span<const int64_t> input_splits, const SymmGroup& group) {
  return make_call(SymmOp::all_to_all_v, group, [&](OpCall& call) {
    const int ranks = call.ranks();
    call.takes(input);
    call.record.any_rows = true;
    TUTTI_CHECK(input.ndim() >= 1, "{}: the input {} has no rows", call.name(), describe(input));
    TUTTI_CHECK(static_cast<int>(input_splits.size()) == ranks &&
                    std::all_of(input_splits.begin(), input_splits.end(), [](int64_t s) { return s >= 0; }) &&
                    sum_of(input_splits) == input.extent(0),
                "{}: {} splits must be {} numbers >= 0 with the sum {}", call.name(), input_splits.size(), ranks,
                input.extent(0));
    // 1. Who sends how much to whom: element [s * W + d] is what rank s sends to rank d.
    call.agree(input_splits);
    std::vector<int64_t> all;
    for (int s = 0; s < ranks; ++s) {
      for (int d = 0; d < ranks; ++d) all.push_back(call.number_of(s, d));
    }
    const auto splits_of = [&](int s) {
      return std::span(all).subspan(static_cast<size_t>(s * ranks), static_cast<size_t>(ranks));
    };
    int64_t most = 0;
    AllToAllVResult result;
    for (int s = 0; s < ranks; ++s) {
      most = std::max(most, sum_of(splits_of(s)));
      result.output_splits.push_back(splits_of(s)[static_cast<size_t>(call.rank())]);
    }
    Extents row = input.extents();
    row.erase(0);
    const int64_t row_bytes = numel_of(row) * itemsize(input.dtype());
    Extents sizes = input.extents();
    sizes[0] = sum_of(result.output_splits);
    result.output = Tensor::empty(sizes, input.dtype());
    if (most * row_bytes == 0) return result;
    // 2. Everybody's rows are readable; each rank fetches its own.
    const Published inputs(call, input, most * row_bytes);
    auto* out = static_cast<std::byte*>(result.output.raw_data());
    for (int s = 0; s < ranks; ++s) {
      const int64_t before = sum_of(splits_of(s).first(static_cast<size_t>(call.rank())));
      const int64_t nbytes = result.output_splits[static_cast<size_t>(s)] * row_bytes;
      std::memcpy(out, inputs.data(s) + before * row_bytes, static_cast<size_t>(nbytes));
      out += nbytes;
    }
    // 3. Nobody reads any more.
    call.finish();
    return result;
  });
}

}  // namespace tutti::comm::symm
