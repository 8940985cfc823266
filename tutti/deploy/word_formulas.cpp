#include "tutti/deploy/word_formulas.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "tutti/deploy/byte_stream.h"

namespace tutti::deploy {
namespace {

using Wide = __int128;
constexpr int64_t kDenominators[] = {1, 2, 3, 4, 6, 8, 16};

// 1, each size, each product of two sizes.
Words monomials_of(std::span<const int64_t> sizes) {
  Words values{1};
  for (const int64_t s : sizes) values.push_back(s);
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (size_t k = i; k < sizes.size(); ++k) values.push_back(sizes[i] * sizes[k]);
  }
  return values;
}
size_t num_monomials(size_t symbols) { return 1 + symbols + symbols * (symbols + 1) / 2; }

std::optional<int64_t> evaluate(std::span<const int64_t> coefficients, int64_t denominator, const Words& monomials) {
  Wide sum = 0;
  for (size_t m = 0; m < monomials.size(); ++m) {
    const Wide term = static_cast<Wide>(coefficients[m]) * monomials[m];
    if (__builtin_add_overflow(sum, term, &sum)) return std::nullopt;
  }
  if (sum % denominator != 0) return std::nullopt;
  sum /= denominator;
  if (sum < std::numeric_limits<int64_t>::min() || sum > std::numeric_limits<int64_t>::max()) return std::nullopt;
  return static_cast<int64_t>(sum);
}

// Finds polynomials through the points of one variant.
class Fit {
 public:
  explicit Fit(std::vector<Words> monomials) : monomials_(std::move(monomials)) {
    // Elimination over points and monomials leaves those that are independent.
    const size_t columns = monomials_[0].size();
    std::vector<std::vector<double>> rows;
    for (const Words& w : monomials_) rows.emplace_back(w.begin(), w.end());
    std::vector<bool> used(rows.size(), false);
    for (size_t c = 0; c < columns; ++c) {
      size_t best = rows.size();
      for (size_t r = 0; r < rows.size(); ++r) {
        if (!used[r] && (best == rows.size() || std::abs(rows[r][c]) > std::abs(rows[best][c]))) best = r;
      }
      if (best == rows.size() || std::abs(rows[best][c]) < 1e-6) continue;
      used[best] = true;
      chosen_.push_back(best);
      columns_.push_back(c);
      for (size_t r = 0; r < rows.size(); ++r) {
        if (used[r]) continue;
        const double factor = rows[r][c] / rows[best][c];
        for (size_t k = c; k < columns; ++k) rows[r][k] -= factor * rows[best][k];
      }
    }
    invert();
  }

  // The coefficients, and what all of them are divided by; nothing when no polynomial gives all `values`.
  std::optional<std::pair<Words, int64_t>> operator()(const Words& values) const {
    const size_t n = chosen_.size();
    std::vector<long double> solution(n, 0);
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < n; ++k) solution[i] += inverse_[i][k] * static_cast<long double>(values[chosen_[k]]);
    }
    for (const int64_t denominator : kDenominators) {
      Words coefficients(monomials_[0].size(), 0);
      bool fits = true;
      for (size_t i = 0; i < n; ++i) {
        const long double c = solution[i] * static_cast<long double>(denominator);
        fits = fits && std::abs(c) < 0x1p60L;
        if (fits) coefficients[columns_[i]] = std::llround(c);
      }
      for (size_t p = 0; fits && p < values.size(); ++p)
        fits = evaluate(coefficients, denominator, monomials_[p]) == values[p];
      if (fits) return std::pair(std::move(coefficients), denominator);
    }
    return std::nullopt;
  }

 private:
  // Gauss-Jordan, with the chosen points as rows and the chosen monomials as columns.
  void invert() {
    const size_t n = chosen_.size();
    inverse_.assign(n, std::vector<long double>(n, 0));
    std::vector<std::vector<long double>> rows(n, std::vector<long double>(n));
    for (size_t i = 0; i < n; ++i) {
      inverse_[i][i] = 1;
      for (size_t k = 0; k < n; ++k) rows[i][k] = static_cast<long double>(monomials_[chosen_[i]][columns_[k]]);
    }
    for (size_t c = 0; c < n; ++c) {
      size_t best = c;
      for (size_t r = c; r < n; ++r) {
        if (std::abs(rows[r][c]) > std::abs(rows[best][c])) best = r;
      }
      std::swap(rows[c], rows[best]);
      std::swap(inverse_[c], inverse_[best]);
      const long double pivot = rows[c][c];
      for (size_t k = 0; k < n; ++k) rows[c][k] /= pivot, inverse_[c][k] /= pivot;
      for (size_t r = 0; r < n; ++r) {
        const long double factor = r == c ? 0 : rows[r][c];
        for (size_t k = 0; k < n; ++k) rows[r][k] -= factor * rows[c][k], inverse_[r][k] -= factor * inverse_[c][k];
      }
    }
  }

  const std::vector<Words> monomials_;    // per point
  std::vector<size_t> chosen_, columns_;  // as many independent points as monomials
  std::vector<std::vector<long double>> inverse_;
};

void put_numbers(ByteWriter& out, const Words& numbers) {
  out.put(static_cast<uint64_t>(numbers.size()));
  for (const int64_t n : numbers) out.put(n);
}

}  // namespace

std::string encode_formulas(std::span<const Words> sizes, std::span<const Words> words) {
  std::map<size_t, std::vector<size_t>> variants;  // by length: the points
  for (size_t p = 0; p < words.size(); ++p) variants[words[p].size()].push_back(p);
  std::vector<uint32_t> variant_of(words.size());
  ByteWriter out;
  out.put(static_cast<uint64_t>(variants.size()));
  uint32_t number = 0;
  for (const auto& [length, points] : variants) {
    std::vector<Words> monomials;
    for (const size_t p : points) monomials.push_back(monomials_of(sizes[p])), variant_of[p] = number;
    ++number;
    const Fit fit(std::move(monomials));
    std::map<Words, uint32_t> formula_of;  // by the numbers of all points
    std::vector<const Words*> formulas;
    std::vector<uint32_t> of_words;
    Words values(points.size());
    for (size_t w = 0; w < length; ++w) {
      for (size_t i = 0; i < points.size(); ++i) values[i] = words[points[i]][w];
      const auto [it, is_new] = formula_of.emplace(values, static_cast<uint32_t>(formulas.size()));
      if (is_new) formulas.push_back(&it->first);
      of_words.push_back(it->second);
    }
    out.put(static_cast<uint64_t>(formulas.size()));
    for (const Words* all : formulas) {
      const bool is_constant = std::all_of(all->begin(), all->end(), [&](int64_t v) { return v == all->front(); });
      const auto polynomial = is_constant ? std::nullopt : fit(*all);
      out.put(static_cast<uint8_t>(is_constant ? 0 : polynomial ? 1 : 2));
      out.put(polynomial ? polynomial->second : int64_t{1});
      put_numbers(out, is_constant ? Words{all->front()} : polynomial ? polynomial->first : *all);
    }
    out.put(static_cast<uint64_t>(of_words.size()));
    for (const uint32_t f : of_words) out.put(f);
  }
  for (const uint32_t v : variant_of) out.put(v);
  return out.take();
}

WordFormulas::WordFormulas(std::string_view bytes, size_t points, size_t symbols) {
  ByteReader in(bytes, "plans");
  for (size_t count = in.get_count(16); count > 0; --count) {
    Variant variant;
    for (size_t formulas = in.get_count(17); formulas > 0; --formulas) {
      Formula f{in.get_up_to(Formula::Kind::table), in.get<int64_t>(), {}};
      TUTTI_CHECK_PACKAGE(f.denominator > 0, "a formula of the package divides by {}", f.denominator);
      for (size_t numbers = in.get_count(8); numbers > 0; --numbers) f.numbers.push_back(in.get<int64_t>());
      variant.formulas.push_back(std::move(f));
    }
    for (size_t words = in.get_count(4); words > 0; --words) {
      variant.of_words.push_back(in.get<uint32_t>());
      TUTTI_CHECK_PACKAGE(variant.of_words.back() < variant.formulas.size(), "the package has no formula {}",
                          variant.of_words.back());
    }
    variants_.push_back(std::move(variant));
  }
  std::vector<uint32_t> points_of(variants_.size(), 0);
  for (size_t p = 0; p < points; ++p) {
    variant_of_.push_back(in.get<uint32_t>());
    TUTTI_CHECK_PACKAGE(variant_of_.back() < variants_.size(), "the package has no variant {}", variant_of_.back());
    place_of_.push_back(points_of[variant_of_.back()]++);
  }
  in.at_end();
  for (size_t v = 0; v < variants_.size(); ++v) {
    for (const Formula& f : variants_[v].formulas) {
      const size_t wanted = f.kind == Formula::Kind::constant     ? 1
                            : f.kind == Formula::Kind::polynomial ? num_monomials(symbols)
                                                                  : points_of[v];
      TUTTI_CHECK_PACKAGE(f.numbers.size() == wanted, "a formula of the package has {} numbers, not {}",
                          f.numbers.size(), wanted);
    }
  }
}

Words WordFormulas::at(size_t point, std::span<const int64_t> sizes) const {
  const Variant& variant = variants_[variant_of_[point]];
  const Words monomials = monomials_of(sizes);
  Words values;
  for (const Formula& f : variant.formulas) {
    if (f.kind == Formula::Kind::constant) {
      values.push_back(f.numbers[0]);
    } else if (f.kind == Formula::Kind::table) {
      values.push_back(f.numbers[place_of_[point]]);
    } else {
      const std::optional<int64_t> value = evaluate(f.numbers, f.denominator, monomials);
      TUTTI_CHECK_PACKAGE(value.has_value(), "a formula of the package gives no integer");
      values.push_back(*value);
    }
  }
  Words words;
  for (const uint32_t f : variant.of_words) words.push_back(values[f]);
  return words;
}

WordFormulas::Counts WordFormulas::counts() const {
  Counts counts;
  for (const Variant& v : variants_) {
    for (const uint32_t f : v.of_words) {
      const Formula::Kind kind = v.formulas[f].kind;
      (kind == Formula::Kind::constant     ? counts.constant
       : kind == Formula::Kind::polynomial ? counts.polynomial
                                           : counts.table) += 1;
    }
  }
  return counts;
}

}  // namespace tutti::deploy
