#include "tutti/ops/einsum.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/ops/diagonal.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/squeeze.h"

namespace tutti {
namespace {

// A letter, or kEllipsis + i for the i-th dim of "..." from the right.
using Label = int;
using Labels = std::vector<Label>;
constexpr Label kEllipsis = 256;

struct Term {
  Tensor t;
  Labels labels;
};

bool has(const Labels& labels, Label label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }
int64_t place(const Labels& labels, Label label) {
  return std::find(labels.begin(), labels.end(), label) - labels.begin();
}
std::string text_of(Label label) {
  return label < kEllipsis ? fmt::format("letter '{}'", static_cast<char>(label)) : "a dim of '...'";
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

// The labels of one subscript whose "..." stands for `further` dims.
Labels labels_of(const std::string& subscript, int64_t further, std::string_view equation) {
  Labels labels;
  const size_t dots = subscript.find("...");
  for (size_t i = 0; i < subscript.size(); ++i) {
    if (i == dots) {
      for (int64_t d = further; d-- > 0;) labels.push_back(kEllipsis + static_cast<Label>(d));
      i += 2;
      continue;
    }
    TUTTI_CHECK(std::isalpha(static_cast<unsigned char>(subscript[i])),
                "einsum: '{}' in '{}' is neither a letter nor part of one '...'", subscript[i], equation);
    labels.push_back(subscript[i]);
  }
  return labels;
}

int64_t letters_in(const std::string& subscript) {
  return std::count_if(subscript.begin(), subscript.end(), [](unsigned char c) { return std::isalpha(c); });
}

Term take_diagonals(Term term, std::string_view equation) {
  for (size_t j = 1; j < term.labels.size();) {
    const size_t i = static_cast<size_t>(place(term.labels, term.labels[j]));
    if (i == j) {
      ++j;
      continue;
    }
    const auto a = static_cast<int64_t>(i), b = static_cast<int64_t>(j);
    TUTTI_CHECK(term.t.size(a) == term.t.size(b), "einsum: {} of '{}' has size {} and {} in one operand",
                text_of(term.labels[i]), equation, term.t.size(a), term.t.size(b));
    const Label label = term.labels[i];
    term.t = diagonal(term.t, 0, a, b);
    term.labels.erase(term.labels.begin() + b);
    term.labels.erase(term.labels.begin() + a);
    term.labels.push_back(label);
    j = 1;
  }
  return term;
}

Term sum_over(Term term, const std::function<bool(Label)>& goes) {
  Dims dims;
  Labels kept;
  for (size_t i = 0; i < term.labels.size(); ++i) {
    if (goes(term.labels[i])) dims.push_back(static_cast<int64_t>(i));
    else kept.push_back(term.labels[i]);
  }
  return {dims.empty() ? term.t : sum(term.t, {.dims = dims}), kept};
}

Tensor arrange(const Term& term, const Labels& order) {
  Dims dims;
  for (const Label label : order) dims.push_back(place(term.labels, label));
  return permute(term.t, dims);
}

Labels joined(std::initializer_list<const Labels*> lists) {
  Labels all;
  for (const Labels* list : lists) all.insert(all.end(), list->begin(), list->end());
  return all;
}

// Every label is a batch, a row of a, a column of b, or contracted.
Term product(Term a, Term b, const std::function<bool(Label)>& needed) {
  a = sum_over(a, [&](Label l) { return !has(b.labels, l) && !needed(l); });
  b = sum_over(b, [&](Label l) { return !has(a.labels, l) && !needed(l); });
  Labels batch, rows, columns, inner;
  for (const Label l : a.labels) (has(b.labels, l) ? (needed(l) ? batch : inner) : rows).push_back(l);
  for (const Label l : b.labels) {
    if (!has(a.labels, l)) columns.push_back(l);
  }
  const auto size_of = [&](Label l) {
    return has(a.labels, l) ? a.t.size(place(a.labels, l)) : b.t.size(place(b.labels, l));
  };
  const auto extent = [&](const Labels& labels) {
    SymInt n = 1;
    for (const Label l : labels) n *= size_of(l);
    return n;
  };
  const Tensor x = reshape(arrange(a, joined({&batch, &rows, &inner})), {extent(batch), extent(rows), extent(inner)});
  const Tensor y =
      reshape(arrange(b, joined({&batch, &inner, &columns})), {extent(batch), extent(inner), extent(columns)});
  const Labels labels = joined({&batch, &rows, &columns});
  Shape sizes;
  for (const Label l : labels) sizes.push_back(size_of(l));
  return {reshape(matmul(x, y), sizes), labels};
}

// Letters must agree; a dim of "..." that has size 1 here and more elsewhere is dropped, which is what broadcasting it
// comes to.
void match_sizes(std::vector<Term>& terms, std::string_view equation) {
  std::map<Label, SymInt> sizes;
  for (const Term& term : terms) {
    for (size_t i = 0; i < term.labels.size(); ++i) {
      const SymInt size = term.t.size(static_cast<int64_t>(i));
      const auto [it, first] = sizes.emplace(term.labels[i], size);
      if (!first && term.labels[i] >= kEllipsis && it->second == 1) it->second = size;
      const bool spread = term.labels[i] >= kEllipsis && size == 1;
      TUTTI_CHECK(spread || it->second == size, "einsum: {} of '{}' has size {} in one operand and {} in another",
                  text_of(term.labels[i]), equation, it->second, size);
    }
  }
  for (Term& term : terms) {
    for (size_t i = term.labels.size(); i-- > 0;) {
      if (term.t.size(static_cast<int64_t>(i)) == sizes.at(term.labels[i])) continue;
      term.t = squeeze(term.t, static_cast<int64_t>(i));
      term.labels.erase(term.labels.begin() + static_cast<int64_t>(i));
    }
  }
}

// The letters that occur once in all operands, in alphabetical order.
std::string implied_result(std::string subscripts) {
  std::string result = subscripts.find('.') != std::string::npos ? "..." : "";
  std::sort(subscripts.begin(), subscripts.end());
  for (const char c : subscripts) {
    if (std::isalpha(static_cast<unsigned char>(c)) && std::count(subscripts.begin(), subscripts.end(), c) == 1)
      result += c;
  }
  return result;
}

}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands) {
  std::string text(equation);
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  const std::vector<std::string> subscripts = split(text.substr(0, arrow));
  TUTTI_CHECK(!operands.empty() && subscripts.size() == operands.size(), "einsum: '{}' has {} operand{}, {} {} given",
              equation, subscripts.size(), subscripts.size() == 1 ? "" : "s", operands.size(),
              operands.size() == 1 ? "is" : "are");
  std::vector<Term> terms;
  int64_t most = 0;  // dims that "..." stands for
  for (size_t k = 0; k < operands.size(); ++k) {
    const bool dots = subscripts[k].find("...") != std::string::npos;
    const int64_t further = operands[k].ndim() - letters_in(subscripts[k]);
    Labels labels = labels_of(subscripts[k], further, equation);
    TUTTI_CHECK(dots ? further >= 0 : further == 0, "einsum: '{}' names {} dims, operand {} is {}", subscripts[k],
                letters_in(subscripts[k]), k, operands[k].sizes());
    most = std::max(most, further);
    terms.push_back(take_diagonals({operands[k], std::move(labels)}, equation));
  }
  const Labels result =
      labels_of(arrow == std::string::npos ? implied_result(text) : text.substr(arrow + 2), most, equation);
  for (size_t i = 0; i < result.size(); ++i) {
    const bool known =
        std::any_of(terms.begin(), terms.end(), [&](const Term& term) { return has(term.labels, result[i]); });
    TUTTI_CHECK(known, "einsum: {} of the result of '{}' is in no operand", text_of(result[i]), equation);
    TUTTI_CHECK(place(result, result[i]) == static_cast<int64_t>(i), "einsum: {} stands twice in the result of '{}'",
                text_of(result[i]), equation);
  }
  match_sizes(terms, equation);
  Term all = terms[0];
  for (size_t k = 1; k < terms.size(); ++k) {
    all = product(all, terms[k], [&](Label l) {
      return has(result, l) || std::any_of(terms.begin() + static_cast<int64_t>(k) + 1, terms.end(),
                                           [&](const Term& t) { return has(t.labels, l); });
    });
  }
  all = sum_over(all, [&](Label l) { return !has(result, l); });
  return arrange(all, result);
}

Tensor einsum(std::string_view equation, const Tensor& a) { return einsum(equation, {&a, 1}); }

Tensor einsum(std::string_view equation, const Tensor& a, const Tensor& b) {
  const Tensor operands[] = {a, b};
  return einsum(equation, operands);
}

}  // namespace tutti
