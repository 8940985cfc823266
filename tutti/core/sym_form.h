// The normal form of a size expression: a sum of products with integer coefficients.
//
// Two size expressions that are equal as polynomials have the same normal form. The rules are those of integers, with
// one exception: a sum or product whose coefficients would exceed 64 bits is left as it was written.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tutti {

struct SymForm {
  // The coefficient times the product of the factors, which are nodes in ascending order, repeated for powers.
  struct Term {
    std::vector<int64_t> factors;
    int64_t coefficient;
    friend bool operator==(const Term&, const Term&) = default;
  };
  std::vector<Term> terms;  // no two with the same factors, none with coefficient 0, ascending
  int64_t constant = 0;
  friend bool operator==(const SymForm&, const SymForm&) = default;

  static SymForm of_constant(int64_t value) { return {{}, value}; }
  static SymForm of_factor(int64_t node) { return {{{{node}, 1}}, 0}; }
  bool is_constant() const { return terms.empty(); }
  // Whether this is a single term.
  bool is_product() const { return terms.size() == 1 && constant == 0; }
};

// These return nullopt when a coefficient would exceed 64 bits.
std::optional<SymForm> add(const SymForm& a, const SymForm& b, int64_t sign);  // a + sign * b, sign is 1 or -1
// Also nullopt when both are sums.
std::optional<SymForm> multiply(const SymForm& a, const SymForm& b);
// a / b if both are products and b divides a for all non-zero values of the factors, else nullopt. Precondition: b is
// not 0.
std::optional<SymForm> divide_exactly(const SymForm& a, const SymForm& b);

}  // namespace tutti
