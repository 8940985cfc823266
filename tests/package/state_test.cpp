// Functions that change tensors: whole training steps that a package continues, caches, arguments written in place.
#include <gtest/gtest.h>
#include <algorithm>

#include <thread>

#include "tests/package/support/packaged_cases.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using deploy::Package;
using package_test::for_this_processor;
using package_test::Mlp;
using package_test::usage_error_of;
using package_test::values;

PackageOptions with_state(const std::string& name, std::vector<PackagedState> state, bool gradients = false) {
  PackageOptions options = for_this_processor(name);
  options.state = std::move(state);
  options.gradients = gradients;
  return options;
}

// Forward, backward and optimizer of an Mlp on plain tensors, in f32 or with bf16 products.
struct TrainingStep {
  TrainingStep(DType dtype, bool adamw) : dtype(dtype), adamw(adamw) {
    for (int i = 0; i < 3; ++i) {
      const Extents sizes = i == 0 ? Extents{16, 24} : i == 1 ? Extents{24} : Extents{24, 8};
      parameters.push_back(requires_grad_(values(static_cast<uint64_t>(i), sizes)));
      for (int k = 0; k < (adamw ? 2 : 1); ++k) moments.push_back(full(to_shape(sizes), 0.0));
    }
    set_numbers(1);
  }
  void set_numbers(int64_t step) {
    if (adamw) adamw_numbers.set({.lr = lr(step), .step = step});
    else sgd_numbers.set({.lr = lr(step)});
  }
  static double lr(int64_t step) { return 0.05 / static_cast<double>(step); }
  std::vector<PackagedState> state() const {
    std::vector<PackagedState> state;
    for (size_t i = 0; i < parameters.size(); ++i) state.push_back({fmt::format("w{}", i), parameters[i]});
    for (size_t i = 0; i < moments.size(); ++i) state.push_back({fmt::format("m{}", i), moments[i]});
    for (const PackagedState& n : numbers()) state.push_back(n);
    return state;
  }
  std::vector<PackagedState> numbers() const {
    if (!adamw) return {{"grad_scale", sgd_numbers.grad_scale}, {"lr", sgd_numbers.lr}};
    return {{"grad_scale", adamw_numbers.grad_scale},
            {"decay", adamw_numbers.decay},
            {"step_size", adamw_numbers.step_size},
            {"inv_correction2", adamw_numbers.inv_correction2}};
  }
  Tensor operator()(const Tensor& x, const Tensor& y) const {
    const auto as = [&](const Tensor& t) { return cast(t, dtype); };
    const Tensor h = tanh(add(matmul(as(x), as(parameters[0])), as(parameters[1])));
    const Tensor miss = sub(cast(matmul(h, as(parameters[2])), DType::f32), y);
    const Tensor loss = mean(mul(miss, miss));
    const Tensor outputs[] = {loss};
    const std::vector<Tensor> grads = grad(outputs, parameters);
    const NoGradScope update;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (adamw)
        adamw_step_(parameters[i], grads[i], moments[2 * i], moments[2 * i + 1], adamw_numbers, {.lr = 0, .step = 1});
      else sgd_step_(parameters[i], grads[i], moments[i], sgd_numbers, {.lr = 0, .momentum = 0.9, .weight_decay = 0.1});
    }
    return detach(loss);
  }
  const DType dtype;
  const bool adamw;
  std::vector<Tensor> parameters, moments;
  AdamWNumbers adamw_numbers;
  SgdNumbers sgd_numbers;
};

Tensor batch_x(int64_t step) { return values(static_cast<uint64_t>(100 + step), {6, 16}); }
Tensor batch_y(int64_t step) { return values(static_cast<uint64_t>(300 + step), {6, 8}); }

// A run of 20 steps that is packaged after 7: the package continues it, on any number of threads.
TEST(PackageState, ATrainingStepContinuesTheRunToTheSameBits) {
  const testing::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool adamw : {false, true}) {
      TrainingStep live(dtype, adamw);
      const auto take = [&](int64_t step) {
        live.set_numbers(step);
        return live(batch_x(step), batch_y(step));
      };
      for (int64_t step = 1; step <= 7; ++step) take(step);
      package(folder / "step", live, with_state("step", live.state(), true), batch_x(1), batch_y(1));
      const auto opened = Package::open(folder / "step");
      std::vector<std::shared_ptr<deploy::PackageState>> states;
      for (int i = 0; i < 3; ++i) states.push_back(opened->new_state());
      for (int64_t step = 8; step <= 27; ++step) {
        const Tensor loss = take(step);
        for (size_t i = 0; i < states.size(); ++i) {
          RankContext::current().set_threads(1 << i);
          for (const PackagedState& n : live.numbers()) states[i]->write(n.name, n.tensor);
          const std::string where =
              fmt::format("step {} of {}, adamw {}, {} threads, ", step, name_of(dtype), adamw, 1 << i);
          expect_same_bits(opened->run(*states[i], {{batch_x(step), batch_y(step)}})[0], loss, where);
          for (const PackagedState& s : live.state())
            expect_same_bits(states[i]->read(s.name), s.tensor, where + s.name);
        }
        RankContext::current().set_threads(0);
      }
    }
  }
}

TEST(PackageState, PackagingLeavesTheTensorsAsTheyWere) {
  const testing::TemporaryFolder folder;
  const TrainingStep step(DType::f32, true);
  std::vector<Tensor> before;
  for (const PackagedState& s : step.state()) before.push_back(clone(s.tensor));
  package(folder / "step", step, with_state("step", step.state(), true), batch_x(1), batch_y(1));
  for (size_t i = 0; i < before.size(); ++i) expect_same_bits(step.state()[i].tensor, before[i]);
}

TEST(PackageState, StatesOfOnePackageDoNotMeet) {
  const testing::TemporaryFolder folder;
  const Tensor total = full({3}, 0.0);
  const auto count = [&](const Tensor& x) { return mul(add_(total, x), 2.0); };
  package(folder / "f", count, with_state("f", {{"total", total}}), values(1, {3}));
  const auto opened = Package::open(folder / "f");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto state = opened->new_state();
      for (int i = 1; i <= 50; ++i)
        expect_same_bits(opened->run(*state, {{full({3}, t)}})[0], full({3}, 2.0 * t * i), fmt::format("{} {}", t, i));
      expect_same_bits(state->read("total"), full({3}, 50.0 * t));
    });
  }
  for (std::thread& t : threads) t.join();
}

// One name is a row of another: both are views of one memory, of which the function writes a part.
TEST(PackageState, TensorsOfOneMemoryStayOne) {
  const testing::TemporaryFolder folder;
  const Tensor all = values(1, {4, 3});
  const Tensor row = slice(all, 0, 2, 3);
  const auto fn = [&](const Tensor& x) {
    mul_(row, x);
    return std::vector<Tensor>{sum(all), row};
  };
  package(folder / "f", fn, with_state("f", {{"row", row}, {"all", all}}), values(2, {3}));
  const auto opened = Package::open(folder / "f");
  const auto state = opened->new_state();
  std::vector<Tensor> kept;
  for (uint64_t i = 0; i < 4; ++i) {
    const std::vector<Tensor> expected = fn(values(i, {3})), results = opened->run(*state, {{values(i, {3})}});
    for (size_t k = 0; k < 2; ++k) expect_same_bits(results[k], expected[k]);
    expect_same_bits(state->read("all"), all);
    for (size_t k = 0; k < kept.size(); k += 2) expect_same_bits(kept[k], kept[k + 1]);  // results are copies
    kept.push_back(results[1]), kept.push_back(clone(results[1]));
    if (i != 1) continue;
    copy_(row, values(9, {1, 3}));
    state->write("row", values(9, {1, 3}));
  }
}

// As in a call of the function: what precedes the op that fails has been written, and nothing that follows it.
TEST(PackageState, AnOpThatFailsLeavesWhatTheFunctionLeaves) {
  const testing::TemporaryFolder folder;
  const Tensor first = Tensor::of<int64_t>({1, 2}), second = Tensor::of<int64_t>({1, 2});
  const auto fn = [&](const Tensor& x) {
    add_(first, x);
    const Tensor quotient = floordiv(first, x);
    add_(second, quotient);
    return quotient;
  };
  package(folder / "f", fn, with_state("f", {{"first", first}, {"second", second}}), Tensor::of<int64_t>({3, 4}));
  const auto opened = Package::open(folder / "f");
  const auto state = opened->new_state();
  for (const auto& x : {Tensor::of<int64_t>({3, 4}), Tensor::of<int64_t>({3, 0}), Tensor::of<int64_t>({5, -4})}) {
    const std::string live = usage_error_of([&] { fn(x); });
    const std::string packaged = usage_error_of([&] { opened->run(*state, {{x}}); });
    EXPECT_EQ(packaged.empty(), live.empty());
    EXPECT_HAS(packaged,
               live.substr(std::min(live.size(), live.find(':'))));  // it also names the line, where it is known
    expect_same_bits(state->read("first"), first);
    expect_same_bits(state->read("second"), second);
  }
  EXPECT_HAS(usage_error_of([&] { opened->run(*state, {{Tensor::of<int64_t>({3})}}); }), "argument 0");
  expect_same_bits(state->read("first"), first);
}

TEST(PackageState, ACallThatFindsAnotherUnderWayIsRefused) {
  const testing::TemporaryFolder folder;
  const Tensor total = full({1 << 16}, 0.0);
  const auto count = [&](const Tensor& x) { return sum(add_(total, x)); };
  package(folder / "f", count, with_state("f", {{"total", total}}), full({1 << 16}, 1.0));
  const auto opened = Package::open(folder / "f");
  const auto state = opened->new_state();
  std::atomic<int64_t> calls = 0, refusals = 0;
  std::vector<std::thread> threads;
  const Tensor x = full({1 << 16}, 1.0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const std::string text = usage_error_of([&] { opened->run(*state, {{x}}); });
        if (text == "no error") {
          ++calls;
        } else {
          EXPECT_HAS(text, "another thread works on this state");
          ++refusals;
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(calls + refusals, 200);
  expect_same_bits(state->read("total"), full({1 << 16}, static_cast<double>(calls)));
}

TEST(PackageState, CallsThatDoNotFitAreRefused) {
  const testing::TemporaryFolder folder;
  const Tensor total = full({3}, 0.0);
  const auto count = [&](const Tensor& x) { return add_(total, x); };
  package(folder / "f", count, with_state("f", {{"total", total}}), values(1, {3}));
  const auto opened = Package::open(folder / "f"), again = Package::open(folder / "f");
  EXPECT_HAS(usage_error_of([&] { opened->run({{values(1, {3})}}); }), "the function changes state, such as 'total'");
  const auto state = opened->new_state();
  EXPECT_HAS(usage_error_of([&] { again->run(*state, {{values(1, {3})}}); }), "the state is of another package");
  EXPECT_HAS(usage_error_of([&] { state->read("sum"); }), "its state has no tensor 'sum'; it has total");
  EXPECT_HAS(usage_error_of([&] { state->write("total", values(1, {4})); }),
             "'total' of its state is f32 [3], and cannot be f32 [4]");
  EXPECT_HAS(usage_error_of([&] { state->write("total", Tensor::of<int32_t>({1, 2, 3})); }), "cannot be i32 [3]");
}

TEST(PackageState, DeclarationsThatDoNotFitAreRefused) {
  const testing::TemporaryFolder folder;
  const Tensor total = full({3, 4}, 0.0), other = full({3, 4}, 0.0);
  const auto count = [&](const Tensor& x) { return add_(total, x); };
  const auto refusal = [&](std::vector<PackagedState> state) {
    return usage_error_of([&] { package(folder / "f", count, with_state("f", std::move(state)), values(1, {3, 4})); });
  };
  EXPECT_HAS(refusal({}), "it writes a tensor that the function holds; name the tensor in PackageOptions::state");
  EXPECT_HAS(refusal({{"other", other}}), "it writes a tensor that the function holds");
  EXPECT_HAS(refusal({{"total", total}, {"total", other}}), "has no name of its own");
  EXPECT_HAS(refusal({{"", total}}), "has no name of its own");
  EXPECT_HAS(refusal({{"total", Tensor()}}), "undefined");
  EXPECT_HAS(refusal({{"total", transpose(total, 0, 1)}}), "a view with gaps");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(PackageState, AGradientThatStaysIsRefused) {
  const testing::TemporaryFolder folder;
  const Tensor w = requires_grad_(values(1, {3}));
  const auto fn = [&](const Tensor& x) {
    const Tensor loss = sum(mul(w, x));
    backward(loss);
    return detach(loss);
  };
  const std::string text =
      usage_error_of([&] { package(folder / "f", fn, with_state("f", {{"w", w}}, true), values(2, {3})); });
  EXPECT_HAS(text, "it leaves a gradient in");
}

// What the program itself changes during a call is no function of the state.
TEST(PackageState, AStepThatCountsForItselfIsNotPackaged) {
  const testing::TemporaryFolder folder;
  TrainingStep step(DType::f32, true);
  int64_t taken = 0;
  const auto fn = [&](const Tensor& x, const Tensor& y) {
    step.set_numbers(++taken);
    return step(x, y);
  };
  try {
    package(folder / "f", fn, with_state("f", step.state(), true), batch_x(1), batch_y(1));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_HAS(std::string(error.what()), "such as the number of a step, must be among them");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(PackageWrites, ArgumentsAreWrittenInPlaceHoweverTheyLie) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& cache, const Tensor& row, const Tensor& scale) {
    copy_(slice(cache, 0, 1, 2), row);
    const Tensor total = sum(cache, {.dims = {0}});
    mul_(cache, scale);
    return total;
  };
  package(folder / "f", fn, for_this_processor("f"), values(1, {4, 3}), values(2, {1, 3}), values(3, {3}));
  const auto opened = Package::open(folder / "f");
  const auto& inputs = opened->manifest().inputs;
  EXPECT_TRUE(inputs[0].is_written && !inputs[1].is_written && !inputs[2].is_written);
  for (const int kind : {0, 1, 2}) {
    const auto lay = [&] {
      const Tensor plain = values(5, {4, 3}), across = values(5, {3, 4}), inside = values(5, {9, 3});
      return kind == 0 ? plain : kind == 1 ? transpose(across, 0, 1) : slice(inside, 0, 2, 6);
    };
    const Tensor eager = lay(), packaged = lay();
    for (uint64_t call = 0; call < 3; ++call) {
      const Tensor row = values(6 + call, {1, 3}), scale = values(7 + call, {3});
      expect_same_bits(opened->run({{packaged, row, scale}})[0], fn(eager, row, scale), fmt::format("kind {}", kind));
      expect_same_bits(packaged, eager, fmt::format("kind {}, call {}", kind, call));
    }
  }
  const Tensor expanded = expand(values(1, {1, 3}), {4, 3});
  EXPECT_HAS(usage_error_of([&] { opened->run({{expanded, values(2, {1, 3}), values(3, {3})}}); }),
             "argument 0 is written, and some of its elements are the same memory");
  const Tensor shared = values(1, {6, 3});
  EXPECT_HAS(usage_error_of([&] { opened->run({{slice(shared, 0, 0, 4), slice(shared, 0, 3, 4), values(3, {3})}}); }),
             "argument 0 is written, and argument 1 is in the same memory");
  const Tensor plain = values(1, {4, 3});
  EXPECT_HAS(usage_error_of([&] {
               const Tensor into[] = {slice(plain, 0, 0, 1)};
               opened->run({{plain, values(2, {1, 3}), values(3, {3})}}, into);
             }),
             "the memory for result 0");
}

}  // namespace
}  // namespace tutti
