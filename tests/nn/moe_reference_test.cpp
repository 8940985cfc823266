// The mixture of experts against results and gradients of PyTorch: tests/golden/pytorch_moe.txt, whose format
// moe_reference.py in this folder describes.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "tutti/autograd/backward.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::nn {
namespace {

struct Case {
  std::string name;
  MoEOptions options;
  std::map<std::string, Tensor> tensors;
};

Tensor read_tensor(std::istream& in) {
  std::string dtype, value;
  int ndim = 0;
  in >> dtype >> ndim;
  Extents sizes;
  for (int d = 0; d < ndim; ++d) {
    int64_t size = 0;
    in >> size;
    sizes.push_back(size);
  }
  const Tensor t = Tensor::empty(sizes, dtype == "i64" ? DType::i64 : DType::f32);
  for (int64_t i = 0; i < t.numel(); ++i) {
    in >> value;
    if (is_floating(t.dtype())) t.data<float>()[i] = std::stof(value);
    else facets::write_int64(t, i, std::stoll(value));
  }
  return t;
}

std::vector<Case> read_cases() {
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/golden/pytorch_moe.txt");
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string word, scores;
    in >> word;
    if (word == "#") continue;
    if (word == "case") {
      Case& c = cases.emplace_back();
      RouterOptions& r = c.options.router;
      in >> c.name >> scores >> r.top_k >> r.route_norm >> r.route_scale >> r.num_expert_groups >>
          r.num_limited_groups >> c.options.shared_hidden_dim;
      r.score_func = parse_score_function(scores);
    } else {
      cases.back().tensors.emplace(word, read_tensor(in));
    }
  }
  for (Case& c : cases) {
    c.options.dim = c.tensors.at("x").extent(1);
    c.options.hidden_dim = c.tensors.at("w1").extent(1);
    c.options.router.num_experts = c.tensors.at("gate").extent(0);
  }
  return cases;
}

constexpr std::pair<const char*, const char*> kParameters[] = {{"gate.weight", "gate"},
                                                               {"experts.w1", "w1"},
                                                               {"experts.w2", "w2"},
                                                               {"experts.w3", "w3"},
                                                               {"shared_experts.gate_proj.weight", "shared_gate"},
                                                               {"shared_experts.up_proj.weight", "shared_up"},
                                                               {"shared_experts.down_proj.weight", "shared_down"}};

// Within `tolerance` of the largest element.
void expect_near(const Tensor& actual, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.extents(), expected.extents()) << what;
  const std::vector<double> a = facets::values(actual, actual.extents()),
                            e = facets::values(expected, expected.extents());
  double scale = 1;
  for (const double v : e) scale = std::max(scale, std::fabs(v));
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], e[i], tolerance * scale) << what << ", element " << i;
}

void expect_pytorch(const Case& c, double tolerance) {
  SCOPED_TRACE(c.name);
  MoE layer(c.options);
  std::map<std::string, std::string> names(std::begin(kParameters), std::end(kParameters));
  const auto parameters = layer.named_parameters();
  EXPECT_EQ(parameters.size(), c.options.shared_hidden_dim > 0 ? 7u : 4u);
  for (const NamedParameter& p : parameters) p.parameter.assign(c.tensors.at(names.at(p.name)));
  layer.gate->expert_bias.set(c.tensors.at("expert_bias"));

  const Tensor x = requires_grad_(c.tensors.at("x"));
  const Routing routing = layer.gate->forward(detach(x));
  expect_near(routing.expert_ids_TK, c.tensors.at("ids"), 0, "ids");
  expect_near(routing.weights_TK, c.tensors.at("weights"), tolerance, "weights");
  const Tensor y = layer.forward(x);
  expect_near(y, c.tensors.at("y"), tolerance, "y");
  const Tensor times = Tensor::empty(y.extents(), DType::f32);
  for (int64_t i = 0; i < times.numel(); ++i) times.data<float>()[i] = static_cast<float>(i % 7 + 1);
  backward(y, times);
  expect_near(grad_of(x), c.tensors.at("grad_x"), tolerance, "gradient of x");
  for (const NamedParameter& p : parameters)
    expect_near(p.parameter.grad(), c.tensors.at("grad_" + names.at(p.name)), tolerance, "gradient of " + p.name);
}

TEST(MoEReference, ChoicesResultsAndGradientsAreThoseOfPytorch) {
  const std::vector<Case> cases = read_cases();
  ASSERT_EQ(cases.size(), 6u);
  for (const Case& c : cases) expect_pytorch(c, 2e-6);
}

}  // namespace
}  // namespace tutti::nn
