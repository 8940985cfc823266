// What linear cross entropy says of arguments that do not fit.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/linear_cross_entropy_shard.h"

namespace tutti {
namespace {

const Tensor x = facets::sample_tensor(1, {300, 3}), w = facets::sample_tensor(2, {700, 3}),
             labels = facets::sample_tensor(3, {300}, DType::i64, 0, 700);

void expect_error(const std::function<void()>& call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "no error; expected: " << text;
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}
void expect_error(const Tensor& target, const LinearCrossEntropyOptions& options, const std::string& text) {
  expect_error([&] { linear_cross_entropy(x, w, target, options); }, "linear_cross_entropy: " + text);
}

TEST(LinearCrossEntropyErrors, OperandsThatDoNotFit) {
  expect_error(
      [] { linear_cross_entropy(x, facets::sample_tensor(1, {7, 4}), labels); },
      "input is [300, 3] f32 cpu, weight [7, 4] f32 cpu; expected floats [..., F] and [V, F], both f64 or neither");
  expect_error([] { linear_cross_entropy(x, facets::sample_tensor(1, {7, 3}, DType::f64), labels); },
               "both f64 or neither");
  expect_error([] { linear_cross_entropy(x, Tensor::empty({0, 3}), labels); },
               "weight is [0, 3] f32 cpu: there is no class");
  expect_error(labels, {.bias = facets::sample_tensor(1, {3})},
               "bias is [3] f32 cpu; expected floats [700], f64 with f64 operands only");
  expect_error(labels, {.class_weight = facets::sample_tensor(1, {3})},
               "class_weight is [3] f32 cpu; expected floats [700]");
  expect_error(labels, {.row_weight = facets::sample_tensor(1, {3})},
               "row_weight is [3] f32 cpu; expected floats [300]");
}

TEST(LinearCrossEntropyErrors, TargetsThatDoNotFit) {
  expect_error(facets::sample_tensor(1, {300}), {},
               "target is [300] f32 cpu; expected labels, integers [300], or probabilities, floats [300, 700]");
  expect_error(facets::sample_tensor(1, {30}, DType::i32), {}, "target is [30] i32 cpu; expected labels");
  const Tensor p = facets::sample_tensor(1, {300, 700}, DType::f32, 0, 1);
  expect_error(p, {.label_smoothing = 0.1},
               "label_smoothing and class_weight are for labels; put them into the target probabilities");
  for (const int64_t label : {-1, 700}) {
    const Tensor wrong = Tensor::of(std::vector<int64_t>(300, 5));
    facets::write_int64(wrong, 9, label);
    expect_error(
        wrong, {},
        fmt::format("label {} at row 9 is outside [0, 700); use ignore_index, -100 here, for rows to ignore", label));
  }
}

TEST(LinearCrossEntropyErrors, NumbersOutOfRange) {
  expect_error(labels, {.label_smoothing = 1.5},
               "label_smoothing = 1.5, z_loss = 0; expected label_smoothing in [0, 1] and z_loss 0 or more");
  expect_error(labels, {.softcap = -1}, "softcap = -1; expected a positive bound of logits, or 0 for none");
  expect_error(labels, {.logits_dtype = DType::f16},
               "logits_dtype is f16; expected f32 or the dtype of input or weight, f32 and f32");
  expect_error(labels, {.max_bytes = 0},
               "max_bytes = 0, chunk_rows = 0, chunk_classes = 0; expected a positive bound, and sizes of chunks or 0");
}

TEST(LinearCrossEntropyErrors, ChunksBelowALeaf) {
  expect_error(labels, {.chunk_classes = 100},
               "chunk_classes = 100 would cut a leaf of 512 classes, whose sum is one chain: the smallest chunk here "
               "is 350 classes");
  const Tensor weight = requires_grad_(facets::sample_tensor(2, {700, 3}));
  EXPECT_NO_THROW(linear_cross_entropy(x, w, labels, {.chunk_rows = 10}));  // rows alone are independent
  expect_error(
      [&] { linear_cross_entropy(x, weight, labels, {.chunk_rows = 10}); },
      "chunk_rows = 10 would cut a leaf of 128 rows, whose sum is one chain: the smallest chunk here is 75 rows");
}

TEST(LinearCrossEntropyErrors, GradientsInTheForwardOfOtherLosses) {
  constexpr LossGradients kInForward = LossGradients::in_forward;
  const std::string rule = "; it is for labels without label_smoothing and z_loss; leave gradients = recomputed here";
  expect_error(facets::sample_tensor(1, {300, 700}, DType::f32, 0, 1), {.gradients = kInForward},
               "gradients = in_forward with target [300, 700] f32 cpu, label_smoothing = 0, z_loss = 0" + rule);
  expect_error(labels, {.label_smoothing = 0.1, .gradients = kInForward},
               "gradients = in_forward with target [300] i64 cpu, label_smoothing = 0.1, z_loss = 0" + rule);
  expect_error(labels, {.z_loss = 0.5, .gradients = kInForward},
               "gradients = in_forward with target [300] i64 cpu, label_smoothing = 0, z_loss = 0.5" + rule);
  expect_error(labels, {.reduction = LossReduction::none, .gradients = kInForward},
               "gradients = in_forward with reduction = none: the forward cannot know the cotangent of each row; use "
               "mean or sum, with row_weight for "
               "factors of rows, or gradients = recomputed");
  expect_error(labels, {.chunk_classes = 512, .gradients = kInForward},
               "gradients = in_forward with chunk_classes = 512: all classes of a row are held until its gradient is "
               "computed; leave chunk_classes 0, and "
               "bound chunk_rows or max_bytes");
  const Tensor weight = requires_grad_(facets::sample_tensor(2, {700, 3}));
  expect_error([&] { linear_cross_entropy(x, weight, labels, {.max_bytes = 64 << 10, .gradients = kInForward}); },
               "linear_cross_entropy: max_bytes = 65536 is too small");
  expect_error(
      [&] { linear_cross_entropy(x, weight, labels, {.chunk_rows = 10, .gradients = kInForward}); },
      "chunk_rows = 10 would cut a leaf of 128 rows, whose sum is one chain: the smallest chunk here is 75 rows");
  const Tensor wrong = Tensor::of(std::vector<int64_t>(300, 5));
  facets::write_int64(wrong, 9, 700);
  expect_error([&] { linear_cross_entropy(x, weight, wrong, {.gradients = kInForward}); },
               "label 700 at row 9 is outside [0, 700); use ignore_index, -100 here");
  expect_error(
      [&] {
        linear_cross_entropy(x, weight, wrong,
                             {.class_weight = facets::sample_tensor(4, {700}), .gradients = kInForward});
      },
      "label 700 at row 9 is outside [0, 700); use ignore_index, -100 here");
  const Tensor outputs[] = {linear_cross_entropy(x, weight, labels, {.gradients = kInForward})}, inputs[] = {weight};
  const Tensor first[] = {grad(outputs, inputs, {}, {.create_graph = true})[0]},
               ones[] = {facets::sample_tensor(1, {700, 3})};
  expect_error([&] { grad(first, inputs, ones); },
               "gradients of this gradient are not defined; write the loss with linear and log_softmax to have them");
}

TEST(LinearCrossEntropyErrors, GradientsThatAreNotGiven) {
  const Tensor p = requires_grad_(facets::sample_tensor(1, {300, 700}, DType::f32, 0, 1));
  expect_error([&] { backward(linear_cross_entropy(x, w, p)); },
               "the target probabilities, or the class weights of label_smoothing, want a gradient");
  const Tensor weight = requires_grad_(facets::sample_tensor(2, {700, 3}));
  const Tensor outputs[] = {linear_cross_entropy(x, weight, labels)}, inputs[] = {weight};
  const Tensor first[] = {grad(outputs, inputs, {}, {.create_graph = true})[0]},
               ones[] = {facets::sample_tensor(1, {700, 3})};
  expect_error([&] { grad(first, inputs, ones); },
               "gradients of this gradient are not defined; write the loss with linear and log_softmax to have them");
}

TEST(LinearCrossEntropyErrors, ShardsThatDoNotFit) {
  const Tensor column = facets::sample_tensor(4, {300}), short_column = facets::sample_tensor(4, {30});
  expect_error([&] { linear_class_statistics(x, w, short_column, 0); },
               "linear_class_statistics: labels are [30] f32 cpu; expected integers [300]");
  expect_error([&] { linear_class_statistics(facets::sample_tensor(1, {2, 3, 3}), w, labels, 0); },
               "linear_class_statistics: input is [2, 3, 3] f32 cpu; expected [N, F]");
  expect_error([&] { linear_cross_entropy_shard_backward(x, w, short_column, labels, {column, column, column}, 0); },
               "linear_cross_entropy_shard_backward: grad is [30] f32 cpu; expected floats [300]");
  expect_error(
      [&] { linear_cross_entropy_shard_backward(x, w, column, labels, {column, column, column}, 0, {.bias = true}); },
      "linear_cross_entropy_shard_backward: the gradient of the bias is asked for, and there is no bias");
}

}  // namespace
}  // namespace tutti
