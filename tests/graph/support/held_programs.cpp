#include "tests/graph/support/held_programs.h"

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/graph/support/outcome.h"
#include "tests/graph/support/random_program.h"
#include "tests/graph/support/same.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/inplace.h"

namespace tutti::graph_test {
namespace {

using Look = CompileOptions::Look;

// What a function holds. Two that are made alike, and changed alike, have the same values in memory of their own.
struct Held {
  Tensor variable;
  std::vector<Tensor> list;
  std::shared_ptr<Tensor> shared;
  const Tensor* pointer = nullptr;
  std::vector<Tensor> owners;  // of tensors that are held no longer

  explicit Held(const Program& program) {
    const std::vector<Tensor> like = arguments_of(program);
    const auto fresh = [&](uint64_t seed, const Tensor& t) {
      return values(t.extents(), program.seed + seed, t.dtype());
    };
    list.reserve(16);
    variable = fresh(1, like[0]);
    list = {fresh(2, like[2]), values({}, program.seed + 3), fresh(4, like[1])};
    shared = std::make_shared<Tensor>(fresh(5, like[2]));
    pointer = &list[1];
  }

  // With whom a call begins: its arguments and what is held.
  std::vector<Tensor> with(std::vector<Tensor> arguments) const {
    arguments.push_back(variable);
    arguments.insert(arguments.end(), list.begin(), list.end());
    arguments.push_back(*shared);
    arguments.push_back(*pointer);
    return arguments;
  }

  Tensor& at(uint64_t n) { return n % 5 == 0 ? variable : n % 5 == 1 ? *shared : list[n % list.size()]; }

  // unseen: also in ways that no Tensor object tells of.
  void change(uint64_t seed, bool unseen) {
    std::mt19937_64 random(seed);
    const uint64_t n = random(), m = random(), value = random();
    if (random() % 3 == 0) owners = with({});  // they live on
    constexpr DType dtypes[] = {DType::f32, DType::f64, DType::bf16, DType::i64};
    Tensor& t = at(n);
    switch (random() % (unseen ? 12 : 10)) {
      case 0:
      case 1:
        t = values(t.extents(), value, t.dtype());
        break;
      case 2:
        t = values(t.extents(), value, dtypes[m % 4]);
        break;
      case 3:
        t = values({1 + static_cast<int64_t>(m % 3)}, value, t.dtype());
        break;
      case 4:
        std::swap(t, at(m));
        break;
      case 5:
        fill_(t, 1);
        break;  // in place
      case 6:
        shared = std::make_shared<Tensor>(values(shared->extents(), value));
        break;
      case 7: {  // moves all elements
        std::vector<Tensor> moved;
        moved.reserve(16);
        for (Tensor& element : list) moved.push_back(std::move(element));
        if (m % 2 == 0) moved.push_back(values({1}, value));
        pointer = &moved[1];
        list = std::move(moved);
        break;
      }
      case 8:
        t = Tensor(t);
        break;  // what it was
      case 9:
        break;
      case 10:
        list.push_back(values({1}, value));
        break;
      default:
        pointer = pointer == &variable ? &list[0] : &variable;
        break;
    }
    if (list.size() > 8) list.resize(4);
  }
};

struct Difference {
  std::string text;
  int64_t compiles = 0;
};

Difference difference(const Program& program, const CompileOptions& options) {
  const bool reads = options.on_break == CompileOptions::OnBreak::segment;
  Held held(program), eager_held(program);
  const auto function = compile(
      [&](const std::vector<Tensor>& arguments) { return run_program(program, held.with(arguments), reads); }, options);
  const auto differs = [](const char* what, const std::vector<Tensor>& got,
                          const std::vector<Tensor>& expected) -> std::string {
    if (got.size() != expected.size()) return fmt::format("{} {}, expected {}", got.size(), what, expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (!same_but_for_nans(got[i], expected[i]))
        return fmt::format("{} {} is\n{}\nexpected\n{}", what, i, to_string(got[i]), to_string(expected[i]));
    }
    return "";
  };
  for (uint64_t call = 0; call < 9; ++call) {
    const int64_t growth = std::max<int64_t>(static_cast<int64_t>(call % 5) - 2, 0);
    const std::vector<Tensor> eager = arguments_of(program, growth), given = arguments_of(program, growth);
    const Outcome expected = outcome_of(call, [&] { return run_program(program, eager_held.with(eager), reads); });
    const Outcome got = outcome_of(call, [&] { return function(given); });
    std::string text = differs("results", got.made, expected.made);
    if (got.error != expected.error) text = fmt::format("it threw \"{}\", expected \"{}\"", got.error, expected.error);
    if (text.empty()) text = differs("arguments", given, eager);
    if (text.empty()) text = differs("held tensors", held.with({}), eager_held.with({}));
    if (!text.empty()) return {fmt::format("call {}: {}", call, text)};
    for (Held* h : {&held, &eager_held}) h->change(program.seed * 31 + call, options.look == Look::every_call);
  }
  return {"", function.statistics().compiles};
}

}  // namespace

std::string first_difference_when_held_are_replaced(uint64_t first, uint64_t count, CompileOptions options,
                                                    int64_t* compiles) {
  options.on_limit = CompileOptions::OnLimit::forget;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = make_program(seed);
    const Difference found = difference(program, options);
    if (compiles != nullptr) *compiles += found.compiles;
    if (found.text.empty()) continue;
    const Program small = shrink(program, [&](const Program& p) { return !difference(p, options).text.empty(); });
    return fmt::format("program {}: {}\n{}", seed, difference(small, options).text, describe(small));
  }
  return "";
}

}  // namespace tutti::graph_test
