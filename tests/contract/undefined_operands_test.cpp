// A function that is given an undefined tensor answers with a typed error: each operand of each public function of
// tutti/ops in turn.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <sstream>
#include <tuple>

#include "tutti/autograd/backward.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

// Arguments of a call in which one operand, counted over tensors and lists of tensors, is undefined.
class Arguments {
 public:
  explicit Arguments(int undefined) : undefined_(undefined) {}

  template <class T>
  T make() {
    if constexpr (std::is_same_v<T, Tensor>) {
      return next_++ == undefined_ ? Tensor{} : ones({2, 3});
    } else if constexpr (std::is_same_v<T, std::span<const Tensor>>) {
      list_ = {ones({2, 3}), make<Tensor>()};
      return list_;
    } else if constexpr (std::is_arithmetic_v<T>) {
      return T{1};
    } else if constexpr (std::is_same_v<T, const char*>) {
      return "text";
    } else if constexpr (std::is_same_v<T, SymInt>) {
      return SymInt(1);
    } else if constexpr (std::is_same_v<T, RandomKey>) {
      return random_key("key");
    } else {
      return T{};
    }
  }

 private:
  int undefined_, next_ = 0;
  std::vector<Tensor> list_;
};

template <class T>
constexpr bool kIsOperand = std::is_same_v<T, Tensor> || std::is_same_v<T, std::span<const Tensor>>;

std::set<std::string>& probed() {
  static std::set<std::string> names;
  return names;
}

// Whatever an undefined operand leads to, it is a result, or an error that the caller can catch and fix.
template <class R, class... A>
void probe(const char* name, R (*function)(A...)) {
  probed().insert(name);
  constexpr int operands = (int{kIsOperand<std::decay_t<A>>} + ... + 0);
  for (int k = 0; k < operands; ++k) {
    Arguments arguments(k);
    std::tuple<std::decay_t<A>...> values{arguments.make<std::decay_t<A>>()...};
    try {
      std::apply([&](auto&... v) { (void)function(static_cast<A>(v)...); }, values);
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()), "") << name;
    } catch (const std::exception& error) {
      ADD_FAILURE() << name << ", operand " << k << ": " << error.what();
    }
  }
}

#define PROBE(function) probe(#function, ::tutti::function)

// Functions of tutti/ops/*.h that take tensors, by their declarations.
std::set<std::string> declared() {
  std::set<std::string> names;
  const std::regex declaration(
      R"(^(?:inline )?[A-Za-z_:][\w:<>, ]*[\w>] (\w+)\((?:const Tensor&|std::span<const Tensor>))");
  for (const auto& file : std::filesystem::directory_iterator(TUTTI_SOURCE_DIR "/tutti/ops")) {
    if (file.path().extension() != ".h") continue;
    std::ifstream text(file.path());
    for (std::string line; std::getline(text, line);) {
      std::smatch found;
      if (std::regex_search(line, found, declaration)) names.insert(found[1]);
    }
  }
  return names;
}

TEST(UndefinedOperands, AreATypedErrorInEveryPublicFunctionAndNoneIsLeftOut) {
  PROBE(relu);
  PROBE(silu);
  PROBE(gelu);
  PROBE(swiglu);
  PROBE(as_strided);
  PROBE(sdpa);
  PROBE(sdpa_with_logsumexp);
  PROBE(sdpa_partial_backward);
  PROBE(sdpa_partial);
  PROBE(sdpa_paged);
  PROBE(write_pages_);
  PROBE(write_page_codes_);
  PROBE(avg_pool1d);
  PROBE(avg_pool2d);
  PROBE(avg_pool3d);
  PROBE(adaptive_avg_pool1d);
  PROBE(adaptive_avg_pool2d);
  PROBE(adaptive_avg_pool3d);
  PROBE(bitcast);
  PROBE(add_channel_bias);
  PROBE(clamp);
  PROBE(conv_transpose1d);
  PROBE(conv_transpose2d);
  PROBE(conv_transpose3d);
  PROBE(conv1d);
  PROBE(conv2d);
  PROBE(conv3d);
  PROBE(convolution_input_gradient);
  PROBE(convolution_weight_gradient);
  PROBE(clone);
  PROBE(contiguous);
  PROBE(copy_);
  PROBE(full_like);
  PROBE(full_beside);
  PROBE(zeros_like);
  PROBE(ones_like);
  PROBE(cross_entropy);
  PROBE(class_statistics);
  PROBE(cross_entropy_of);
  PROBE(cross_entropy_shard_backward);
  PROBE(diagonal);
  PROBE(diagonal_backward);
  PROBE(embedding);
  PROBE(embedding_backward);
  PROBE(embedding_bag_with_entries);
  PROBE(embedding_bag_backward);
  PROBE(embedding_bag_row_gradients);
  PROBE(embedding_bag_weights_backward);
  PROBE(table_batched_embedding_bags);
  PROBE(quantize_rows);
  PROBE(dequantize_rows);
  PROBE(table_batched_weights_backward);
  PROBE(table_batched_step_);
  PROBE(expand);
  PROBE(expand_as);
  PROBE(expand_backward);
  probe("amax", static_cast<Tensor (*)(const Tensor&, const ExtremeOptions&)>(amax));
  probe("amin", static_cast<Tensor (*)(const Tensor&, const ExtremeOptions&)>(amin));
  probe("argmax", static_cast<Tensor (*)(const Tensor&, const ArgOptions&)>(argmax));
  probe("argmin", static_cast<Tensor (*)(const Tensor&, const ArgOptions&)>(argmin));
  PROBE(flip);
  PROBE(roll);
  PROBE(tril);
  PROBE(triu);
  PROBE(fma);
  PROBE(gather);
  PROBE(index_select);
  PROBE(fill_);
  PROBE(zero_);
  PROBE(int_mm);
  PROBE(layer_norm);
  PROBE(linear_cross_entropy);
  PROBE(linear_class_statistics);
  PROBE(linear_cross_entropy_shard_backward);
  PROBE(matmul);
  PROBE(matmul_into);
  PROBE(matmul_sum);
  PROBE(matmul_sum_into);
  PROBE(bmm);
  PROBE(linear);
  PROBE(max_pool1d);
  PROBE(max_pool2d);
  PROBE(max_pool3d);
  PROBE(max_pool1d_with_indices);
  PROBE(max_pool2d_with_indices);
  PROBE(max_pool3d_with_indices);
  PROBE(adaptive_max_pool1d);
  PROBE(adaptive_max_pool2d);
  PROBE(adaptive_max_pool3d);
  PROBE(adaptive_max_pool1d_with_indices);
  PROBE(adaptive_max_pool2d_with_indices);
  PROBE(adaptive_max_pool3d_with_indices);
  PROBE(max_unpool);
  PROBE(nonzero);
  PROBE(nonzero_static);
  PROBE(masked_select);
  PROBE(pack_weight);
  PROBE(packed_linear);
  PROBE(scaled_linear);
  PROBE(weight_only_linear);
  PROBE(quantized_linear);
  PROBE(quantized_grouped_mm);
  PROBE(quantized_embedding);
  PROBE(dequantize);
  PROBE(pad);
  PROBE(pairwise_dots);
  PROBE(pairwise_dots_backward);
  PROBE(permute);
  PROBE(transpose);
  PROBE(t);
  probe("sum", static_cast<Tensor (*)(const Tensor&, const ReduceOptions&)>(sum));
  probe("prod", static_cast<Tensor (*)(const Tensor&, const ReduceOptions&)>(prod));
  probe("any", static_cast<Tensor (*)(const Tensor&, const ReduceOptions&)>(any));
  probe("all", static_cast<Tensor (*)(const Tensor&, const ReduceOptions&)>(all));
  PROBE(view);
  PROBE(reshape);
  PROBE(flatten);
  PROBE(unflatten);
  PROBE(resize_storage_);
  PROBE(rms_norm);
  PROBE(rope);
  PROBE(embedding_row_gradients);
  PROBE(sgd_rows_step_);
  PROBE(adagrad_rows_step_);
  PROBE(adamw_rows_step_);
  PROBE(cumsum);
  PROBE(cumprod);
  PROBE(cummax);
  PROBE(cummin);
  PROBE(scatter);
  PROBE(scatter_add);
  PROBE(slice);
  PROBE(narrow);
  PROBE(select);
  PROBE(chunk);
  PROBE(slice_backward);
  PROBE(softmax);
  PROBE(log_softmax);
  PROBE(logsumexp);
  PROBE(sort);
  PROBE(argsort);
  PROBE(unsqueeze);
  probe("mean", static_cast<Tensor (*)(const Tensor&, const MeanOptions&)>(mean));
  probe("var", static_cast<Tensor (*)(const Tensor&, const VarOptions&)>(var));
  probe("stddev", static_cast<Tensor (*)(const Tensor&, const VarOptions&)>(stddev));
  PROBE(sum_to);
  PROBE(topk);
  PROBE(abs);
  PROBE(neg);
  PROBE(sign);
  PROBE(ceil);
  PROBE(floor);
  PROBE(trunc);
  PROBE(round);
  PROBE(bitwise_not);
  PROBE(exp);
  PROBE(exp2);
  PROBE(expm1);
  PROBE(add_in_order);
  PROBE(log);
  PROBE(log2);
  PROBE(log10);
  PROBE(log1p);
  PROBE(rsqrt);
  PROBE(reciprocal);
  PROBE(sin);
  PROBE(cos);
  PROBE(tan);
  PROBE(asin);
  PROBE(acos);
  PROBE(atan);
  PROBE(sinh);
  PROBE(cosh);
  PROBE(tanh);
  PROBE(asinh);
  PROBE(acosh);
  PROBE(atanh);
  PROBE(erf);
  PROBE(erfinv);
  PROBE(sigmoid);
  PROBE(lgamma);
  PROBE(signbit);
  PROBE(logical_not);
  PROBE(isnan);
  PROBE(isinf);
  PROBE(unfold);
  PROBE(unfold_backward);
  PROBE(masked_fill);
  PROBE(kthvalue);
  PROBE(mode);
  PROBE(logcumsumexp);
  PROBE(decayed_cumsum);
  PROBE(sort_slots);
  PROBE(dispatch_rows);
  PROBE(combine_rows);
  probe("cast", static_cast<Tensor (*)(const Tensor&, DType)>(cast));
  probe("sqrt", static_cast<Tensor (*)(const Tensor&)>(sqrt));
  probe("cat", static_cast<Tensor (*)(std::span<const Tensor>, int64_t)>(cat));
  probe("stack", static_cast<Tensor (*)(std::span<const Tensor>, int64_t)>(stack));
  probe("dropout", static_cast<Tensor (*)(const Tensor&, double, const RandomKey&)>(dropout));
  probe("dropout", static_cast<Tensor (*)(const Tensor&, double)>(dropout));
  probe("einsum", static_cast<Tensor (*)(std::string_view, std::span<const Tensor>)>(einsum));
  probe("einsum", static_cast<Tensor (*)(std::string_view, const Tensor&)>(einsum));
  probe("einsum", static_cast<Tensor (*)(std::string_view, const Tensor&, const Tensor&)>(einsum));
  probe("embedding_bag",
        static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const BagOptions&)>(embedding_bag));
  probe("embedding_bag", static_cast<Tensor (*)(const Tensor&, const Tensor&, const BagOptions&)>(embedding_bag));
  probe("grouped_mm",
        static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const GroupedMmOptions&)>(grouped_mm));
  probe("grouped_mm", static_cast<Tensor (*)(const Tensor&, const Tensor&, const GroupedMmOptions&)>(grouped_mm));
  probe("add_", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(add_));
  probe("add_", static_cast<Tensor (*)(const Tensor&, const Scalar&)>(add_));
  probe("mul_", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(mul_));
  probe("mul_", static_cast<Tensor (*)(const Tensor&, const Scalar&)>(mul_));
  probe("truediv_", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(truediv_));
  probe("truediv_", static_cast<Tensor (*)(const Tensor&, const Scalar&)>(truediv_));
  probe("sub_", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(sub_));
  probe("sub_", static_cast<Tensor (*)(const Tensor&, const Scalar&)>(sub_));
  probe(
      "adamw_step_",
      static_cast<void (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const AdamWStep&)>(adamw_step_));
  probe("adamw_step_", static_cast<void (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                            const AdamWNumbers&, const AdamWStep&)>(adamw_step_));
  probe("sgd_step_", static_cast<void (*)(const Tensor&, const Tensor&, const Tensor&, const SgdStep&)>(sgd_step_));
  probe(
      "sgd_step_",
      static_cast<void (*)(const Tensor&, const Tensor&, const Tensor&, const SgdNumbers&, const SgdStep&)>(sgd_step_));
  probe("median", static_cast<Tensor (*)(const Tensor&)>(median));
  probe("median", static_cast<SortResult (*)(const Tensor&, int64_t, bool)>(median));
  probe("nanmedian", static_cast<Tensor (*)(const Tensor&)>(nanmedian));
  probe("nanmedian", static_cast<SortResult (*)(const Tensor&, int64_t, bool)>(nanmedian));
  probe("split", static_cast<std::vector<Tensor> (*)(const Tensor&, int64_t, int64_t)>(split));
  probe("split", static_cast<std::vector<Tensor> (*)(const Tensor&, const std::vector<int64_t>&, int64_t)>(split));
  probe("squeeze", static_cast<Tensor (*)(const Tensor&, const Dims&)>(squeeze));
  probe("squeeze", static_cast<Tensor (*)(const Tensor&, int64_t)>(squeeze));
  probe("where", static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&)>(where));
  probe("where", static_cast<Tensor (*)(const Tensor&, const Tensor&, const Scalar&)>(where));
  probe("where", static_cast<Tensor (*)(const Tensor&, const Scalar&, const Tensor&)>(where));

  const std::set<std::string> names = declared();
  EXPECT_GT(names.size(), 150u);
  for (const std::string& name : names)
    EXPECT_TRUE(probed().contains(name)) << name << " is declared in tutti/ops; add PROBE(" << name << ")";
}

TEST(UndefinedOperands, AreNamed) {
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const Tensor x = ones({2, 3});
  EXPECT_EQ(message([&] { add(x, Tensor{}); }),
            "add: input 1 of 2 is an undefined tensor: it was never assigned, was moved from, or is the gradient of a "
            "tensor that nothing depends on; ask defined() first");
  EXPECT_EQ(message([&] { Tensor{}.sizes(); }),
            "an undefined tensor was used where a value is needed: it was never assigned, was moved from, or is the "
            "gradient of a tensor that nothing depends on; ask "
            "defined() first");
  EXPECT_NE(message([&] { relu(grad_of(x)); }).find("undefined tensor"), std::string::npos);
  const Tensor used = requires_grad_(ones({2})), unused = requires_grad_(ones({2}));
  const std::vector<Tensor> grads = grad(std::vector{sum(used * used)}, std::vector{used, unused});
  EXPECT_FALSE(grads[1].defined());
  EXPECT_NE(message([&] { sum(grads[1]); }).find("undefined tensor"), std::string::npos);
  EXPECT_NE(message([&] { backward(Tensor{}); }).find("undefined tensor"), std::string::npos);
  for (const auto& call : std::initializer_list<std::function<void()>>{
           [] { requires_grad_(Tensor{}); }, [] { requires_grad(Tensor{}); }, [] { grad_of(Tensor{}); },
           [] { set_grad(Tensor{}, {}); }, [] { detach(Tensor{}); }, [] { take_uses(Tensor{}); },
           [] { register_hook(Tensor{}, {}); }, [] { register_post_accumulate_grad_hook(Tensor{}, {}); }}) {
    EXPECT_NE(message(call).find("undefined tensor"), std::string::npos);
  }
  EXPECT_NE(message([&] { Tensor{}.item(); }).find("undefined"), std::string::npos);
}

// Norms go without the parameters that scale and shift.
TEST(UndefinedOperands, OfNormsStandForOnesAndZeros) {
  const Tensor x = uniform({5, 7}, random_key("x"), -2.0, 2.0);
  const auto same = [](const Tensor& a, const Tensor& b) {
    return std::equal(a.data<float>(), a.data<float>() + a.numel(), b.data<float>(),
                      [](float p, float q) { return std::bit_cast<uint32_t>(p) == std::bit_cast<uint32_t>(q); });
  };
  EXPECT_TRUE(same(layer_norm(x, {}, {}), layer_norm(x, ones({7}), zeros({7}))));
  EXPECT_TRUE(same(layer_norm(x), layer_norm(x, ones({7}), {})));
  EXPECT_TRUE(same(rms_norm(x), rms_norm(x, ones({7}))));
  const Tensor y = requires_grad_(uniform({5, 7}, random_key("y"), -2.0, 2.0));
  backward(sum(layer_norm(y) * x));
  EXPECT_TRUE(grad_of(y).defined());
}

}  // namespace
}  // namespace tutti
