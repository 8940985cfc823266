#include "tutti/comm/exchanges/host_reduction.h"

#include <cstring>

#include "tutti/codegen/combine.h"

namespace tutti::comm {

HostReduction::HostReduction(const CallRecord& call, const Seat& seat, const HostLayout& layout, DType dtype,
                             const ReduceOp& op)
    : OverHosts(call, seat, layout),
      dtype_(dtype),
      op_(op),
      narrow_(itemsize(dtype)),
      wide_(part_bytes(op.kind(), dtype)),
      own_factor_(op.factor()) {}

void HostReduction::exchange_factors(Exchange& exchange) {
  begin();
  factors_.resize(static_cast<size_t>(layout_.per_host));
  for (int j = 0; j < layout_.per_host; ++j) {
    offer(beside(j), reinterpret_cast<const std::byte*>(&own_factor_), sizeof own_factor_);
    take(beside(j), sizeof own_factor_);
  }
  end(exchange);
}

void HostReduction::keep_factors(std::span<const Arrival> from) {
  for (int j = 0; j < layout_.per_host; ++j) {
    const Arrival& arrival = from[static_cast<size_t>(beside(j))];
    if (arrival.bytes > 0) std::memcpy(&factors_[static_cast<size_t>(j)], arrival.data, sizeof(double));
  }
}

void HostReduction::combine_host(std::span<const Arrival> from, std::byte* partials) {
  addends_.clear();
  for (int j = 0; j < layout_.per_host; ++j) addends_.push_back(from[static_cast<size_t>(beside(j))].data);
  const Arrival& own = from[static_cast<size_t>(rank_)];
  if (own.bytes > 0)
    combine_part(op_.kind(), dtype_, addends_, factors_, own.bytes / narrow_, partials + own.offset / narrow_ * wide_);
}

void HostReduction::combine_hosts(std::span<const Arrival> from, std::byte* out) {
  addends_.clear();
  for (int h = 0; h < layout_.hosts; ++h) addends_.push_back(from[static_cast<size_t>(across(h))].data);
  const Arrival& own = from[static_cast<size_t>(rank_)];
  const int ranks = layout_.hosts * layout_.per_host;
  if (own.bytes > 0)
    combine_parts(op_.kind(), dtype_, addends_, ranks, own.bytes / wide_, out + own.offset / wide_ * narrow_);
}

}  // namespace tutti::comm
