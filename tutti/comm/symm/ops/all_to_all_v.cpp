#include "tutti/comm/symm/ops/all_to_all_v.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tutti/comm/symm/ops/published.h"
#include "tutti/comm/symm/workspace.h"

namespace tutti::comm::symm {
namespace {

// The splits of all ranks: element [s * W + d] is what rank s sends to rank d. The last number of a rank's line is the
// size of its rows.
std::vector<int64_t> exchange_splits(std::span<const int64_t> own, int64_t row_bytes, const SymmGroup& group) {
  const int ranks = group.size();
  const auto lease = get_symm_mem_workspace(group, (ranks + 1) * 8);
  const ChannelLease channel = lease.handle().lease_channel();
  const Tensor line = lease.view(group.rank(), {ranks + 1}, DType::i64);
  std::copy(own.begin(), own.end(), line.data<int64_t>());
  line.data<int64_t>()[ranks] = row_bytes;
  lease.handle().barrier(channel.channel());
  std::vector<int64_t> all;
  for (int r = 0; r < ranks; ++r) {
    const Tensor peer = lease.view(r, {ranks + 1}, DType::i64);
    all.insert(all.end(), peer.data<int64_t>(), peer.data<int64_t>() + ranks + 1);
  }
  lease.handle().barrier(channel.channel());
  return all;
}

}  // namespace

AllToAllVResult all_to_all_v(const Tensor& input, std::span<const int64_t> input_splits, const SymmGroup& group) {
  constexpr const char* kOp = "all_to_all_v";
  check_host_access(kOp, group);
  const int ranks = group.size();
  TUTTI_CHECK(input.ndim() >= 1 && input.is_contiguous(), "{}: the input {} must be contiguous and have rows", kOp, describe(input));
  TUTTI_CHECK(static_cast<int>(input_splits.size()) == ranks &&
                  std::all_of(input_splits.begin(), input_splits.end(), [](int64_t s) { return s >= 0; }) &&
                  std::accumulate(input_splits.begin(), input_splits.end(), int64_t{0}) == input.extent(0),
              "{}: {} splits must be {} numbers >= 0 with the sum {}", kOp, input_splits.size(), ranks, input.extent(0));
  Extents row = input.extents();
  row.erase(0);
  const int64_t row_bytes = numel_of(row) * itemsize(input.dtype());
  // 1. Who sends how much to whom.
  const std::vector<int64_t> all = exchange_splits(input_splits, row_bytes, group);
  const auto split = [&](int from, int to) { return all[static_cast<size_t>(from * (ranks + 1) + to)]; };
  int64_t most = 0;
  for (int s = 0; s < ranks; ++s) {
    TUTTI_CHECK(split(s, ranks) == split(0, ranks), "{}: rows of rank 0 have {} bytes, those of rank {} have {}", kOp,
                split(0, ranks), s, split(s, ranks));
    int64_t rows = 0;
    for (int d = 0; d < ranks; ++d) rows += split(s, d);
    most = std::max(most, rows);
  }
  AllToAllVResult result;
  for (int s = 0; s < ranks; ++s) result.output_splits.push_back(split(s, group.rank()));
  Extents sizes = input.extents();
  sizes[0] = std::accumulate(result.output_splits.begin(), result.output_splits.end(), int64_t{0});
  result.output = Tensor::empty(sizes, input.dtype());
  if (most * row_bytes == 0) return result;
  // 2. Everybody's rows are readable; each rank fetches its own.
  const Published inputs(kOp, input, group, most * row_bytes);
  inputs.barrier();
  auto* out = static_cast<std::byte*>(result.output.raw_data());
  for (int s = 0; s < ranks; ++s) {
    int64_t before = 0;
    for (int d = 0; d < group.rank(); ++d) before += split(s, d);
    const int64_t nbytes = split(s, group.rank()) * row_bytes;
    std::memcpy(out, inputs.data(s) + before * row_bytes, static_cast<size_t>(nbytes));
    out += nbytes;
  }
  inputs.barrier();
  return result;
}

}  // namespace tutti::comm::symm
