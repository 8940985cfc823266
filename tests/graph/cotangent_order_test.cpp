// Cotangents of one value are summed in the order of its consumers in the program, whether or not some of them are
// inside a compiled function (numerics contract, N5). The factors are such that every order has a sum of its own.
#include <gtest/gtest.h>

#include <cstring>

#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using Tensors = std::vector<Tensor>;

constexpr int64_t kNumel = 256;

// The i-th factors: among so many, the sums of any three in two orders differ somewhere.
const Tensor& factors(int i) {
  static const std::vector<Tensor> made = [] {
    std::vector<Tensor> list;
    for (uint64_t k = 0; k < 32; ++k) list.push_back(normal({kNumel}, {.key = 77 + k}));
    return list;
  }();
  return made[static_cast<size_t>(i)];
}

Tensor leaf() { return requires_grad_(normal({kNumel}, {.key = 5})); }

// Runs `program(x, f)` with f eager and compiled, twice each, on a leaf and on a value that depends on one; all
// gradients agree bit by bit.
template <class F, class Program>
void expect_equal_bits(const F& f, const Program& program) {
  for (const bool is_leaf : {true, false}) {
    const auto compiled = compile(f, {.name = "inside"});
    const auto gradient = [&](const auto& inside) {
      const Tensor w = leaf();
      const Tensor x = is_leaf ? w : mul(w, 1.0);
      backward(program(x, inside));
      return grad_of(w);
    };
    for (int call = 0; call < 2; ++call) {
      const Tensor eager = gradient(f), got = gradient(compiled);
      EXPECT_EQ(std::memcmp(eager.raw_data(), got.raw_data(), static_cast<size_t>(eager.nbytes())), 0)
          << (is_leaf ? "of a leaf: " : "of a value: ") << to_string(eager) << " and, compiled, " << to_string(got);
    }
  }
}

Tensor scaled(const Tensor& x, int i) { return mul(x, factors(i)); }
Tensor total(const Tensors& terms) {
  Tensor loss = sum(terms[0]);
  for (size_t i = 1; i < terms.size(); ++i) loss = add(loss, sum(terms[i]));
  return loss;
}

TEST(CotangentOrder, OfAnArgumentUsedBeforeAndBehindTheCall) {
  const auto f = [](const Tensor& x) { return total({scaled(x, 2), scaled(x, 3), scaled(x, 4)}); };
  expect_equal_bits(f, [](const Tensor& x, const auto& inside) {
    const Tensor before = total({scaled(x, 0), scaled(x, 1)}), middle = inside(x);
    return add(add(before, middle), total({scaled(x, 5), scaled(x, 6)}));
  });
}

TEST(CotangentOrder, OfAResultUsedInsideAndOutside) {
  const auto f = [](const Tensor& x) {
    const Tensor y = mul(x, 1.5);
    return Tensors{y, total({scaled(y, 0), scaled(y, 1)})};
  };
  expect_equal_bits(f, [](const Tensor& x, const auto& inside) {
    const Tensors r = inside(x);
    return add(r[1], sum(scaled(r[0], 2)));
  });
  expect_equal_bits(f, [](const Tensor& x, const auto& inside) {
    const Tensors r = inside(x);
    return add(r[1], total({scaled(r[0], 2), scaled(r[0], 3), scaled(r[0], 4)}));
  });
}

TEST(CotangentOrder, OfAResultWithOneConsumerInsideAndSeveralOutside) {
  const auto f = [](const Tensor& x) {
    const Tensor y = mul(x, 1.5);
    return Tensors{y, sum(scaled(y, 0))};
  };
  for (int outside = 1; outside < 5; ++outside) {
    expect_equal_bits(f, [&](const Tensor& x, const auto& inside) {
      const Tensors r = inside(x);
      Tensor loss = r[1];
      for (int i = 0; i < outside; ++i) loss = add(loss, sum(scaled(r[0], i + 1)));
      return loss;
    });
  }
}

TEST(CotangentOrder, OfAResultUsedByManyInsideAndOutside) {
  const auto f = [](const Tensor& x) {
    const Tensor y = mul(x, 1.5);
    Tensors terms;
    for (int i = 0; i < 10; ++i) terms.push_back(scaled(y, i));
    return Tensors{y, total(terms), mul(y, 2.0)};
  };
  expect_equal_bits(f, [](const Tensor& x, const auto& inside) {
    const Tensors r = inside(x);
    Tensor loss = add(r[1], sum(r[2]));
    for (int i = 0; i < 12; ++i) loss = add(loss, sum(scaled(r[0], i + 10)));
    return loss;
  });
  // Not all results are used.
  expect_equal_bits(f, [](const Tensor& x, const auto& inside) {
    const Tensors r = inside(x);
    return add(r[1], total({scaled(r[0], 11), scaled(r[0], 13)}));
  });
  expect_equal_bits(f, [](const Tensor& x, const auto& inside) {
    const Tensors r = inside(x);
    return total({scaled(r[0], 11), scaled(r[0], 12), scaled(r[0], 13)});
  });
}

// A cotangent that backward() is given stands before all consumers.
TEST(CotangentOrder, OfAResultThatIsAnOutputOfTheBackward) {
  const auto f = [](const Tensor& x) {
    const Tensor y = mul(x, 1.5);
    return Tensors{y, total({scaled(y, 0), scaled(y, 1)})};
  };
  const auto compiled = compile(f, {.name = "inside"});
  const auto gradient = [&](const auto& inside, bool outside) {
    const Tensor w = leaf();
    const Tensors r = inside(w);
    Tensors outputs{r[0], r[1]}, cotangents{mul(r[0], factors(7)), {}};
    for (Tensor& t : cotangents) t = t.defined() ? detach(t) : t;
    if (outside) outputs.push_back(total({scaled(r[0], 2), scaled(r[0], 3)})), cotangents.emplace_back();
    return grad(outputs, Tensors{w}, cotangents)[0];
  };
  for (const bool outside : {false, true}) {
    const Tensor eager = gradient(f, outside), got = gradient(compiled, outside);
    EXPECT_EQ(std::memcmp(eager.raw_data(), got.raw_data(), static_cast<size_t>(eager.nbytes())), 0)
        << to_string(eager) << " and, compiled, " << to_string(got);
  }
}

TEST(CotangentOrder, OfATensorThatIsAnArgumentAndHeld) {
  const Tensor held = leaf();
  const auto f = [&](const Tensor& x) {
    return total({scaled(x, 0), scaled(held, 1), scaled(x, 2), scaled(held, 3), scaled(x, 4)});
  };
  const auto compiled = compile(f, {.name = "inside"});
  const auto gradient = [&](const auto& inside) {
    set_grad(held, {});
    backward(add(inside(held), sum(scaled(held, 5))));
    return grad_of(held);
  };
  const Tensor eager = gradient(f), got = gradient(compiled);
  EXPECT_EQ(std::memcmp(eager.raw_data(), got.raw_data(), static_cast<size_t>(eager.nbytes())), 0)
      << to_string(eager) << " and, compiled, " << to_string(got);
}

TEST(CotangentOrder, OfAnArgumentGivenTwice) {
  const auto f = [](const Tensor& x, const Tensor& y) {
    return total({scaled(x, 0), scaled(y, 1), scaled(x, 2), scaled(y, 3)});
  };
  const auto compiled = compile(f, {.name = "inside"});
  const auto gradient = [&](const auto& inside) {
    const Tensor w = leaf();
    backward(add(inside(w, w), sum(scaled(w, 5))));
    return grad_of(w);
  };
  const Tensor eager = gradient(f), got = gradient(compiled);
  EXPECT_EQ(std::memcmp(eager.raw_data(), got.raw_data(), static_cast<size_t>(eager.nbytes())), 0)
      << to_string(eager) << " and, compiled, " << to_string(got);
}

// Two calls in a row: what one gives the other takes, and both use it several times.
TEST(CotangentOrder, OfAResultThatAnotherCallTakes) {
  const auto f = [](const Tensor& x) {
    const Tensor y = mul(x, 1.5);
    return Tensors{y, total({scaled(y, 0), scaled(y, 1)})};
  };
  expect_equal_bits(f, [](const Tensor& x, const auto& inside) {
    const Tensors first = inside(x), second = inside(first[0]);
    return add(add(first[1], second[1]), total({scaled(second[0], 5), scaled(first[0], 6), scaled(second[0], 7)}));
  });
}

// Outside of the function nobody has the whole cotangent of such a result: a hook and grad() say so, unless only the
// outside counts.
TEST(CotangentOrder, HooksAndGradOfAResultUsedInsideAreRefused) {
  factors(0);  // made before anything is traced
  const auto f = [](const Tensor& x) {
    const Tensor y = mul(x, 1.5);
    return Tensors{y, total({scaled(y, 0), scaled(y, 1)}), mul(x, 2.0)};
  };
  const auto compiled = compile(f, {.name = "inside"});
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  const std::string refused = "result 0 is also used inside it, so its complete cotangent is not known outside";
  {
    const Tensors r = compiled(leaf());
    EXPECT_NE(message([&] { grad(Tensors{add(r[1], sum(scaled(r[0], 2)))}, Tensors{r[0]}); }).find(refused),
              std::string::npos);
  }
  {
    const Tensors r = compiled(leaf());
    register_hook(r[0], [](const Tensor&) { return Tensor(); });
    EXPECT_NE(message([&] { backward(add(r[1], sum(scaled(r[0], 2)))); }).find(refused), std::string::npos);
  }
  const auto of_the_outside = [&](const auto& inside) {
    const Tensors r = inside(leaf());
    const BackwardOptions again{.retain_graph = true};
    return to_string(grad(Tensors{sum(scaled(r[0], 2))}, Tensors{r[0]}, {}, again)[0]) +
           to_string(grad(Tensors{sum(scaled(r[2], 2))}, Tensors{r[2]}, {}, again)[0]);
  };
  EXPECT_EQ(of_the_outside(f), of_the_outside(compiled));
}

}  // namespace
}  // namespace tutti
