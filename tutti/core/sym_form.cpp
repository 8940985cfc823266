#include "tutti/core/sym_form.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

bool accumulate(int64_t& sum, int64_t sign, int64_t value) {
  return sign > 0 ? !__builtin_add_overflow(sum, value, &sum) : !__builtin_sub_overflow(sum, value, &sum);
}

bool before(const SymForm::Term& a, const SymForm::Term& b) { return a.factors < b.factors; }

}  // namespace

std::optional<SymForm> add(const SymForm& a, const SymForm& b, int64_t sign) {
  SymForm sum = a;
  if (!accumulate(sum.constant, sign, b.constant)) return std::nullopt;
  for (const SymForm::Term& term : b.terms) {
    auto at = std::lower_bound(sum.terms.begin(), sum.terms.end(), term, before);
    if (at == sum.terms.end() || at->factors != term.factors) at = sum.terms.insert(at, {term.factors, 0});
    if (!accumulate(at->coefficient, sign, term.coefficient)) return std::nullopt;
    if (at->coefficient == 0) sum.terms.erase(at);
  }
  return sum;
}

std::optional<SymForm> multiply(const SymForm& a, const SymForm& b) {
  if (!a.is_constant() && b.is_constant()) return multiply(b, a);
  if (a.is_constant()) {
    SymForm scaled = b;
    if (a.constant == 0) return SymForm{};
    if (__builtin_mul_overflow(scaled.constant, a.constant, &scaled.constant)) return std::nullopt;
    for (SymForm::Term& t : scaled.terms) {
      if (__builtin_mul_overflow(t.coefficient, a.constant, &t.coefficient)) return std::nullopt;
    }
    return scaled;
  }
  if (!a.is_product() || !b.is_product()) return std::nullopt;
  SymForm product = a;
  SymForm::Term& t = product.terms[0];
  t.factors.insert(t.factors.end(), b.terms[0].factors.begin(), b.terms[0].factors.end());
  std::sort(t.factors.begin(), t.factors.end());
  if (__builtin_mul_overflow(t.coefficient, b.terms[0].coefficient, &t.coefficient)) return std::nullopt;
  return product;
}

std::optional<SymForm> divide_exactly(const SymForm& a, const SymForm& b) {
  if (!a.is_product() || !(b.is_product() || b.is_constant())) return std::nullopt;
  const int64_t divisor = b.is_constant() ? b.constant : b.terms[0].coefficient;
  SymForm::Term quotient = a.terms[0];
  if (divisor == 0 || (divisor == -1 && quotient.coefficient == std::numeric_limits<int64_t>::min()) ||
      quotient.coefficient % divisor != 0)
    return std::nullopt;
  quotient.coefficient /= divisor;
  if (b.is_product()) {
    for (const int64_t factor : b.terms[0].factors) {
      const auto at = std::find(quotient.factors.begin(), quotient.factors.end(), factor);
      if (at == quotient.factors.end()) return std::nullopt;
      quotient.factors.erase(at);
    }
  }
  if (quotient.factors.empty()) return SymForm::of_constant(quotient.coefficient);
  return SymForm{{quotient}, 0};
}

}  // namespace tutti
