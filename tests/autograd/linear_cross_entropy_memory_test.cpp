// What linear cross entropy holds, and what it does not compute: bytes of the allocator, and the products in a trace.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/linear_cross_entropy.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti {
namespace {

constexpr int64_t kRows = 512, kFeatures = 24, kClasses = 4096;

struct Operands {
  Tensor x = facets::sample_tensor(1, {kRows, kFeatures}), w = facets::sample_tensor(2, {kClasses, kFeatures}),
         b = facets::sample_tensor(3, {kClasses}), labels = facets::sample_tensor(4, {kRows}, DType::i64, 0, kClasses);
};

// What `body` takes at most at once besides what is there before, of all categories.
template <class Body>
int64_t peak_of(Body body) {
  Allocator& allocator = RankContext::current().allocator();
  allocator.reset_peak();
  const int64_t before = allocator.statistics().current_bytes;
  body();
  return allocator.statistics().peak_bytes - before;
}

// How often each product runs.
template <class Body>
std::map<std::string, int> products_of(Body body) {
  Profiler profiler;
  EXPECT_TRUE(profiler.start({.filter = TraceFilter::this_thread, .memory = false}).ok());
  body();
  profiler.stop();
  std::map<std::string, int> counts;
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& e = (*thread.log)[i];
      if (e.category == TraceCategory::annotation) ++counts[e.name];
    }
  }
  return counts;
}

constexpr int64_t kRowVectors = 16 * kRows * 4;  // loss, logsumexp, masks: a handful of numbers a row

// What of the last peak was chunks and waiting sums.
int64_t workspace_at_peak() {
  return RankContext::current().allocator().statistics().at_peak_by_category[static_cast<size_t>(
      MemoryCategory::workspace)];
}

TEST(LinearCrossEntropyMemory, StaysWithinTheBytesGranted) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Operands p;
    for (Tensor* t : {&p.x, &p.w, &p.b}) *t = requires_grad_(cast(*t, dtype));
    const int64_t results = kFeatures * kRows * itemsize(dtype) + kClasses * (kFeatures + 1) * 4;
    for (int64_t bytes = 400'000; bytes < 6'000'000; bytes += bytes / 4) {
      const LinearCrossEntropyOptions options{.bias = p.b, .label_smoothing = 0.1, .z_loss = 1e-4, .max_bytes = bytes};
      Tensor loss;
      const int64_t forward_peak = peak_of([&] { loss = linear_cross_entropy(p.x, p.w, p.labels, options); });
      EXPECT_LE(forward_peak, bytes + kRowVectors);
      EXPECT_LE(workspace_at_peak(), bytes);
      const int64_t backward_peak = peak_of([&] { backward(loss); });
      EXPECT_LE(backward_peak,
                bytes + results * 5 / 4 + kRowVectors);  // the allocator rounds blocks up, by a quarter at most
      EXPECT_LE(workspace_at_peak(), bytes);
      EXPECT_GT(workspace_at_peak(), bytes / 8);
      for (const Tensor& t : {p.x, p.w, p.b}) set_grad(t, {});
    }
  }
}

// Gives the bytes that each complaint names, until there is none: those, and the last complaint.
std::pair<int64_t, std::string> bytes_asked_for(const std::function<void(int64_t max_bytes)>& run) {
  int64_t bytes = 1;
  std::string message;
  for (int attempts = 0; attempts < 4; ++attempts) {
    try {
      run(bytes);
      return {bytes, message};
    } catch (const UsageError& e) {
      message = e.what();
      const size_t at = message.find("needs ");
      const int64_t needed = at == std::string::npos ? 0 : std::stoll(message.substr(at + 6));
      if (needed <= bytes) break;
      bytes = needed;
    }
  }
  ADD_FAILURE() << "no end of complaints: " << message;
  return {bytes, message};
}

TEST(LinearCrossEntropyMemory, TheSmallestBoundThatItNamesIsEnough) {
  const Operands p;
  requires_grad_(p.x), requires_grad_(p.w);
  // The forward asks first, then each gradient.
  const auto [bytes, message] = bytes_asked_for(
      [&](int64_t max_bytes) { backward(linear_cross_entropy(p.x, p.w, p.labels, {.max_bytes = max_bytes})); });
  EXPECT_NE(message.find(fmt::format("is too small for {} rows, {} features and {} classes: the gradient of the", kRows,
                                     kFeatures, kClasses)),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("raise max_bytes to at least that"), std::string::npos) << message;
  EXPECT_LT(bytes, 512 << 10);
  EXPECT_TRUE(grad_of(p.w).defined());
}

TEST(LinearCrossEntropyMemory, ABackwardThatCannotFitIsRefusedByTheForward) {
  const Operands p;
  EXPECT_NO_THROW(linear_cross_entropy(p.x, p.w, p.labels, {.max_bytes = 20 << 10}));
  requires_grad_(p.w);
  EXPECT_THROW(linear_cross_entropy(p.x, p.w, p.labels, {.max_bytes = 20 << 10}), UsageError);
  const NoGradScope no_grad;
  EXPECT_NO_THROW(linear_cross_entropy(p.x, p.w, p.labels, {.max_bytes = 20 << 10}));
}

TEST(LinearCrossEntropyMemory, WhatIsFrozenCostsNothing) {
  const int64_t chunk = kRows * kClasses * 4;
  for (int wanted = 1; wanted < 8; ++wanted) {
    const Operands p;
    const bool x = wanted & 1, w = wanted & 2, b = wanted & 4;
    requires_grad_(p.x, x), requires_grad_(p.w, w), requires_grad_(p.b, b);
    const Tensor loss =
        linear_cross_entropy(p.x, p.w, p.labels, {.bias = p.b, .max_bytes = int64_t{1} << 30, .chunk_rows = kRows});
    int64_t peak = 0;
    const std::map<std::string, int> products = products_of([&] { peak = peak_of([&] { backward(loss); }); });
    const int each = products.at("logits");
    EXPECT_EQ(products.contains("input gradient") ? products.at("input gradient") : 0, x ? each : 0) << wanted;
    EXPECT_EQ(products.contains("weight gradient") ? products.at("weight gradient") : 0, w ? each : 0) << wanted;
    const int64_t results = (x ? p.x.nbytes() : 0) + (w ? p.w.nbytes() : 0) + (b ? p.b.nbytes() : 0);
    EXPECT_LE(peak, chunk + results + kRowVectors + (x ? 5 * p.x.nbytes() : 0)) << wanted;
    EXPECT_EQ(grad_of(p.x).defined(), x);
    EXPECT_EQ(grad_of(p.w).defined(), w);
    EXPECT_EQ(grad_of(p.b).defined(), b);
  }
}

TEST(LinearCrossEntropyMemory, GradientsApartHaveTheBitsOfGradientsTogether) {
  const Operands p;
  requires_grad_(p.x), requires_grad_(p.w);
  std::vector<Tensor> grads[2];
  for (const bool apart : {false, true}) {
    const Tensor outputs[] = {linear_cross_entropy(p.x, p.w, p.labels,
                                                   {.max_bytes = apart ? 400'000 : kDefaultLossBytes})},
                 inputs[] = {p.x, p.w};
    const std::map<std::string, int> products = products_of([&] { grads[apart] = grad(outputs, inputs); });
    const int x = products.at("input gradient"), w = products.at("weight gradient");
    EXPECT_EQ(products.at("logits"), apart ? x + w : x);
    if (!apart) {
      EXPECT_EQ(x, w);
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(grads[0][i].nbytes(), grads[1][i].nbytes());
    EXPECT_EQ(std::memcmp(grads[0][i].raw_data(), grads[1][i].raw_data(), static_cast<size_t>(grads[0][i].nbytes())), 0)
        << i;
  }
}

TEST(LinearCrossEntropyMemory, WithoutGradientNothingIsKept) {
  const Operands p;
  requires_grad_(p.x), requires_grad_(p.w);
  const NoGradScope no_grad;
  const std::map<std::string, int> products = products_of([&] { linear_cross_entropy(p.x, p.w, p.labels); });
  EXPECT_EQ(products.size(), 1u);
  EXPECT_TRUE(products.contains("logits"));
}

TEST(LinearCrossEntropyMemory, OneRowOfManyClassesFitsInLittle) {
  const Tensor x = facets::sample_tensor(1, {1, 2}), w = facets::sample_tensor(2, {1 << 17, 2}),
               label = Tensor::of<int64_t>({77});
  Tensor loss;
  EXPECT_LE(peak_of([&] { loss = linear_cross_entropy(x, w, label, {.max_bytes = 4 << 10}); }), 8 << 10);
  EXPECT_GT(loss.item(), 0);
}

// ---- gradients in the forward ---------------------------------------------------------------------------------------

TEST(LinearCrossEntropyMemory, GradientsInTheForwardStayWithinTheBytesGranted) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Operands p;
    for (Tensor* t : {&p.x, &p.w, &p.b}) *t = requires_grad_(cast(*t, dtype));
    const int64_t results = kFeatures * kRows * itemsize(dtype) + kClasses * (kFeatures + 1) * 4;
    for (int64_t bytes = 3'200'000; bytes < 20'000'000; bytes += bytes / 4) {
      Tensor loss;
      const int64_t forward_peak = peak_of([&] {
        loss = linear_cross_entropy(p.x, p.w, p.labels,
                                    {.bias = p.b, .max_bytes = bytes, .gradients = LossGradients::in_forward});
      });
      EXPECT_LE(forward_peak, bytes + results * 5 / 4 + kRowVectors);
      EXPECT_LE(workspace_at_peak(), bytes);
      EXPECT_GT(workspace_at_peak(), bytes / 8);
      const int64_t backward_peak = peak_of([&] { backward(loss); });
      EXPECT_LE(backward_peak, results * 5 / 4 + kRowVectors);  // copies, and no chunk
      for (const Tensor& t : {p.x, p.w, p.b}) set_grad(t, {});
    }
  }
}

TEST(LinearCrossEntropyMemory, GradientsInTheForwardAreSavedUntilTheBackward) {
  const Operands p;
  requires_grad_(p.w);
  const auto now = [] { return RankContext::current().allocator().statistics().current_bytes; };
  const int64_t before = now();
  const Tensor loss = linear_cross_entropy(p.x, p.w, p.labels, {.gradients = LossGradients::in_forward});
  EXPECT_GE(now() - before, p.w.nbytes());
  EXPECT_LE(now() - before, p.w.nbytes() * 5 / 4 + kRowVectors);
  backward(loss, {}, {.retain_graph = true});
  EXPECT_GE(now() - before, 2 * p.w.nbytes());
  set_grad(p.w, {});
  backward(loss);
  EXPECT_LE(now() - before, p.w.nbytes() * 5 / 4 + kRowVectors);  // the result alone
}

TEST(LinearCrossEntropyMemory, GradientsInTheForwardTakeTheProductsOfWhatIsNeeded) {
  for (int wanted = 0; wanted < 8; ++wanted) {
    const Operands p;
    const bool x = wanted & 1, w = wanted & 2, b = wanted & 4;
    requires_grad_(p.x, x), requires_grad_(p.w, w), requires_grad_(p.b, b);
    Tensor loss;
    const auto count = [](const std::map<std::string, int>& products, const char* name) {
      return products.contains(name) ? products.at(name) : 0;
    };
    const auto forward = products_of([&] {
      loss = linear_cross_entropy(p.x, p.w, p.labels,
                                  {.bias = p.b,
                                   .max_bytes = int64_t{1} << 30,
                                   .chunk_rows = kRows / 4,
                                   .gradients = LossGradients::in_forward});
    });
    if (wanted == 0) {
      EXPECT_EQ(forward.size(), 1u);
      continue;
    }
    EXPECT_EQ(forward.at("logits"), 4) << wanted;
    EXPECT_EQ(count(forward, "input gradient"), x ? 4 : 0) << wanted;
    EXPECT_EQ(count(forward, "weight gradient"), w ? 4 : 0) << wanted;
    EXPECT_TRUE(products_of([&] { backward(loss, {}, {.retain_graph = true}); }).empty()) << wanted;
    // Twice the loss has other cotangents than the forward guessed: statistics, logits and products again.
    const Tensor two[] = {Tensor::of(std::vector<float>{2}, {})}, losses[] = {loss};
    std::vector<Tensor> leaves;
    for (const Tensor& t : {p.x, p.w, p.b}) {
      if (requires_grad(t)) leaves.push_back(t);
    }
    const auto again = products_of([&] { grad(losses, leaves, two); });
    EXPECT_GE(count(again, "logits"), 2) << wanted;
    EXPECT_EQ(count(again, "input gradient") > 0, x) << wanted;
    EXPECT_EQ(count(again, "weight gradient") > 0, w) << wanted;
  }
}

TEST(LinearCrossEntropyMemory, TheForwardGuessesTheCotangentOfEveryRow) {
  const Tensor class_weight = facets::sample_tensor(5, {kClasses}, DType::f32, 0.1, 1.2),
               row_weight = facets::sample_tensor(6, {kRows}, DType::bf16, 0.1, 1.2);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const LossReduction reduction : {LossReduction::mean, LossReduction::sum}) {
      for (int weights = 0; weights < 4; ++weights) {
        Operands p;
        p.x = requires_grad_(cast(p.x, dtype)), p.w = cast(p.w, dtype);
        for (int64_t n = 0; n < kRows; n += 3) facets::write_int64(p.labels, n, kIgnoreLabel);
        LinearCrossEntropyOptions options{.reduction = reduction, .gradients = LossGradients::in_forward};
        if (weights & 1) options.class_weight = class_weight;
        if (weights & 2) options.row_weight = row_weight;
        const Tensor loss = linear_cross_entropy(p.x, p.w, p.labels, options);
        EXPECT_TRUE(products_of([&] { backward(loss); }).empty()) << name_of(dtype) << " weights " << weights;
        EXPECT_TRUE(grad_of(p.x).defined());
      }
    }
  }
}

TEST(LinearCrossEntropyMemory, WithoutGradModeNothingIsComputedInTheForward) {
  const Operands p;
  requires_grad_(p.x), requires_grad_(p.w);
  const NoGradScope no_grad;
  const std::map<std::string, int> products = products_of([&] {
    linear_cross_entropy(p.x, p.w, p.labels, {.max_bytes = 20 << 10, .gradients = LossGradients::in_forward});
  });
  EXPECT_EQ(products.size(), 1u);
  EXPECT_TRUE(products.contains("logits"));
}

TEST(LinearCrossEntropyMemory, TheSmallestBoundOfGradientsInTheForwardIsEnough) {
  const Operands p;
  for (const bool weight : {false, true}) {
    requires_grad_(p.x), requires_grad_(p.w, weight);
    // The forward asks for a backward that computes again first, then for itself.
    const auto [bytes, message] = bytes_asked_for([&](int64_t max_bytes) {
      backward(
          linear_cross_entropy(p.x, p.w, p.labels, {.max_bytes = max_bytes, .gradients = LossGradients::in_forward}));
    });
    EXPECT_NE(message.find(fmt::format(
                  "is too small for {} rows, {} features and {} classes: a forward with gradients needs {} bytes",
                  kRows, kFeatures, kClasses, bytes)),
              std::string::npos)
        << message;
    EXPECT_NE(message.find(fmt::format("for its smallest chunks, {} rows by {} classes", weight ? 128 : 1, kClasses)),
              std::string::npos)
        << message;
    EXPECT_TRUE(grad_of(p.x).defined());
    set_grad(p.x, {});
  }
}

}  // namespace
}  // namespace tutti
