// The arithmetic of a reduction over hosts: first the ranks of this host, to partial results, then those of all hosts.
#pragma once

#include <vector>

#include "tutti/comm/exchanges/over_hosts.h"

namespace tutti::comm {

class HostReduction : public OverHosts {
 protected:
  HostReduction(const CallRecord& call, const Seat& seat, const HostLayout& layout, DType dtype, const ReduceOp& op);

  // The exchange in which the ranks of this host tell each other their factors (premul_sum).
  bool needs_factors() const { return op_.kind() == ReduceKind::premul_sum && factors_.empty(); }
  void exchange_factors(Exchange& exchange);

  // Reduces what arrives from the ranks of this host into `partials`, and what arrives from the ranks of this place
  // into `out`. Both begin where the exchange's offers begin.
  void combine_host(std::span<const Arrival> from, std::byte* partials);
  void combine_hosts(std::span<const Arrival> from, std::byte* out);
  // Stores the factors that arrive.
  void keep_factors(std::span<const Arrival> from);

  const DType dtype_;
  const ReduceOp op_;
  const int64_t narrow_;  // bytes of an element
  const int64_t wide_;    // of a partial result

 private:
  const double own_factor_;
  std::vector<double> factors_;
  std::vector<const std::byte*> addends_;
};

}  // namespace tutti::comm
