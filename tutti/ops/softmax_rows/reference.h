// The monoid (m, r) of softmax_nodes.h over one row, as plain loops in double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace tutti {

struct RestOfRow {
  double m = -std::numeric_limits<double>::infinity(), r = 0;

  double logsumexp() const { return m + std::log1p(r); }
  // -log of the probability of x.
  double surprise(double x) const { return (m - x) + std::log1p(r); }
  // The probability of x, less 1 if it is that of the label.
  double probability_less(double x, bool is_label) const {
    const double p = std::exp(x - m) / (1 + r);
    if (!is_label) return p;
    return x == m ? -(r / (1 + r)) : p - 1;
  }
};

// at(i): element i < n. The first maximum is left out of r, and of no elements or of -inf alone there is none.
template <class At>
RestOfRow rest_of_row(int64_t n, At at) {
  RestOfRow row;
  int64_t first = -1;
  for (int64_t i = 0; i < n; ++i) {
    const double x = at(i);
    if (std::isnan(x)) return {x, x};
    if (x > row.m) row.m = x, first = i;
  }
  for (int64_t i = 0; i < n && first >= 0; ++i) {
    const double x = at(i);
    if (i != first) row.r += x == row.m ? 1 : std::exp(x - row.m);
  }
  return row;
}

// The rest of two neighbouring parts together.
inline RestOfRow combined(const RestOfRow& a, const RestOfRow& b) {
  if (std::isnan(a.m) || std::isnan(b.m)) return {a.m + b.m, a.m + b.m};
  const bool a_leads = a.m >= b.m;
  const RestOfRow &lead = a_leads ? a : b, &other = a_leads ? b : a;
  if (std::isinf(other.m) && other.m < 0) return lead;
  return {lead.m, lead.r + (lead.m == other.m ? 1 : std::exp(other.m - lead.m)) * (1 + other.r)};
}

}  // namespace tutti
