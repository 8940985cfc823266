// Every module of tutti/nn that maps tensors to a tensor, with distributed parameters and inputs only, against one
// rank.
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "tests/dtensor/support/shared_calls.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/nn/activation.h"
#include "tutti/nn/attention.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/convolution.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/moe.h"
#include "tutti/nn/multi_linear.h"
#include "tutti/nn/norm.h"
#include "tutti/nn/table_batched_embedding.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/sum_to.h"
#include "tutti/parallel/distribute_module.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

using dist::Placements;
using dist::replicate;
using dist::sample;
using dist::shard;

struct ModuleCase {
  std::string name;  // of the class, then what is special
  std::function<std::unique_ptr<nn::Module>()> make;
  std::vector<Tensor> inputs;
  std::function<Tensor(nn::Module&, const std::vector<Tensor>&)> call;
  // And nothing else. Its parameters are distributed by a plan (parallel/tensor_parallel.h), which says how their
  // gradients are summed; here they are replicas.
  bool takes_divided_tokens = false;
};

template <class M, class... Args>
ModuleCase of_one(std::string name, const Tensor& x, Args... args) {
  return {std::move(name),
          [=] { return std::make_unique<M>(args...); },
          {x},
          [](nn::Module& m, const std::vector<Tensor>& in) { return static_cast<M&>(m).forward(in[0]); }};
}

// As in models: norms without weights, layers that read one value, lists.
struct Block : nn::Module {
  Block()
      : norm(this, "norm", 8, nn::RMSNormOptions{.elementwise_affine = false}),
        gate(this, "gate", 8, 12),
        up(this, "up", 8, 12),
        list(this, "list"),
        named(this, "named") {
    list->add(12, 8);
    named->add("last", 8, nn::LayerNormOptions{.elementwise_affine = false});
  }
  Tensor forward(const Tensor& x) const {
    const auto [g, u] = nn::multi_linear(norm(x), gate, up);
    return (*named)["last"]((*list)[0](add(g, u)));
  }
  nn::Child<nn::RMSNorm> norm;
  nn::Child<nn::Linear> gate, up;
  nn::Child<nn::ModuleList<nn::Linear>> list;
  nn::Child<nn::ModuleDict<nn::LayerNorm>> named;
};

Tensor ids(const std::vector<int64_t>& values, const Extents& sizes) {
  return reshape(Tensor::of<int64_t>(values), to_shape(sizes));
}

std::vector<ModuleCase> cases() {
  const Tensor rows = sample({4, 8}), line = sample({2, 4, 12}), bags = ids({1, 7, 0, 3, 3, 2}, {2, 3});
  std::vector<ModuleCase> all = {
      of_one<nn::ReLU>("ReLU", rows),
      of_one<nn::SiLU>("SiLU", rows),
      of_one<nn::GELU>("GELU", rows),
      of_one<nn::Sigmoid>("Sigmoid", rows),
      of_one<nn::Tanh>("Tanh", rows),
      of_one<nn::Softmax>("Softmax", rows),
      of_one<nn::Identity>("Identity", rows),
      of_one<nn::Dropout>("Dropout", rows, 0.0),
      of_one<nn::Linear>("Linear", rows, 8, 6),
      of_one<nn::Linear>("Linear without a bias", rows, 8, 6, nn::LinearOptions{.bias = false}),
      of_one<nn::LayerNorm>("LayerNorm", rows, 8),
      of_one<nn::LayerNorm>("LayerNorm without a bias", rows, 8, nn::LayerNormOptions{.bias = false}),
      of_one<nn::LayerNorm>("LayerNorm alone", rows, 8, nn::LayerNormOptions{.elementwise_affine = false}),
      of_one<nn::RMSNorm>("RMSNorm", rows, 8),
      of_one<nn::RMSNorm>("RMSNorm alone", rows, 8, nn::RMSNormOptions{.elementwise_affine = false}),
      of_one<nn::Conv1d>("Conv1d", line, 4, 6, Dims{3}),
      of_one<nn::Conv2d>("Conv2d", sample({2, 4, 6, 6}), 4, 6, Dims{3}),
      of_one<nn::Conv3d>("Conv3d", sample({2, 4, 4, 4, 4}), 4, 6, Dims{2}),
      of_one<nn::Embedding>("Embedding", bags, 8, 6),
      of_one<nn::EmbeddingBag>("EmbeddingBag of equal bags", bags, 8, 6),
      of_one<nn::EmbeddingBag>("EmbeddingBag of equal bags, max", bags, 8, 6, BagMode::max,
                               nn::EmbeddingOptions{.padding_idx = 3}),
      of_one<nn::EmbeddingBag>("EmbeddingBag with a last offset", bags, 8, 6, BagMode::mean, nn::EmbeddingOptions{},
                               true),
      of_one<nn::MultiheadAttention>("MultiheadAttention", sample({2, 4, 8}), 8, 2),
      of_one<Block>("ModuleList and ModuleDict", rows)};
  all.push_back({"EmbeddingBag",
                 [] { return std::make_unique<nn::EmbeddingBag>(8, 6); },
                 {ids({1, 7, 0, 3, 3, 2}, {6}), ids({0, 2, 2}, {3})},
                 [](nn::Module& m, const std::vector<Tensor>& in) {
                   return static_cast<nn::EmbeddingBag&>(m).forward(in[0], in[1]);
                 }});
  all.push_back({"TableBatchedEmbeddingBags",
                 [] {
                   return std::make_unique<nn::TableBatchedEmbeddingBags>(
                       std::vector<nn::TableConfig>{{"user", 8, 6}, {"item", 4, 3}},
                       nn::TableBatchedOptions{.optimizer = {}});
                 },
                 {ids({1, 7, 0, 3, 3, 2}, {6}), ids({0, 2, 2, 5, 6}, {5})},
                 [](nn::Module& m, const std::vector<Tensor>& in) {
                   return static_cast<nn::TableBatchedEmbeddingBags&>(m).forward({.indices = in[0], .offsets = in[1]});
                 }});
  all.push_back(
      {"Sequential",
       [] {
         auto net = std::make_unique<nn::Sequential>();
         net->add<nn::Linear>(8, 12)
             .add<nn::ReLU>()
             .add<nn::LayerNorm>(12, nn::LayerNormOptions{.elementwise_affine = false})
             .add<nn::Linear>(12, 4);
         return net;
       },
       {rows},
       [](nn::Module& m, const std::vector<Tensor>& in) { return static_cast<nn::Sequential&>(m).forward(in[0]); }});
  all.push_back(of_one<nn::MoE>(
      "MoE", sample({16, 8}),
      nn::MoEOptions{.dim = 8, .hidden_dim = 12, .router = {.num_experts = 4, .top_k = 2}, .shared_hidden_dim = 6}));
  all.back().takes_divided_tokens = true;
  all.push_back(of_one<nn::MoE>(
      "MoE of groups", sample({16, 8}),
      nn::MoEOptions{.dim = 8,
                     .hidden_dim = 12,
                     .router = {.num_experts = 8, .top_k = 1, .num_expert_groups = 2, .num_limited_groups = 1}}));
  all.back().takes_divided_tokens = true;
  all.push_back(of_one<nn::MoE>(
      "MoE of equal loads", sample({16, 8}),
      nn::MoEOptions{
          .dim = 8, .hidden_dim = 12, .router = {.num_experts = 4, .top_k = 2, .force_load_balance = true}}));
  all.back().takes_divided_tokens = true;
  return all;
}

// The result, then the gradients of inputs and parameters. `put` and `put_grad` place tensors that all ranks have.
std::vector<Tensor> outcome_of(const ModuleCase& c, nn::Module& module, const std::function<Tensor(const Tensor&)>& put,
                               const std::function<Tensor(const Tensor&)>& put_grad) {
  std::vector<Tensor> inputs;
  for (const Tensor& t : c.inputs) {
    inputs.push_back(put(t));
    if (is_floating(t.dtype())) requires_grad_(inputs.back() = detach(inputs.back()));
  }
  std::vector<Tensor> all{c.call(module, inputs)};
  backward(all[0], put_grad(sample(all[0].extents(), all[0].dtype(), 9)));
  for (const Tensor& t : inputs) all.push_back(grad_of(t));
  for (const nn::NamedParameter& p : module.named_parameters()) all.push_back(p.parameter.grad());
  return all;
}

std::unique_ptr<nn::Module> made(const ModuleCase& c) {
  auto module = c.make();
  seed_all(5);
  nn::initialize(*module);
  return module;
}

TEST(ModulesOnMeshes, HaveTheBitsOfOneRank) {
  const TokenGrainScope grain(2);
  for (const ModuleCase& c : cases()) {
    const std::unique_ptr<nn::Module> whole = made(c);
    const auto same = [](const Tensor& t) { return t; };
    const std::vector<Tensor> expected = outcome_of(c, *whole, same, same);
    for (const int64_t ranks : {2, 3, 4}) {
      if (c.takes_divided_tokens && ranks == 3) continue;  // tokens are cut in halves
      for (int layout = 0; layout < 3; ++layout) {
        const std::string about = fmt::format("{} on {} ranks, layout {}", c.name, ranks, layout);
        if (c.takes_divided_tokens && layout != 1) continue;
        dist::on_mesh(
            {ranks},
            [&](const dist::Mesh& mesh) {
              const std::unique_ptr<nn::Module> module = made(c);
              // Replicas; inputs divided by their first dim; parameters divided by theirs, too.
              distribute_module(*module, mesh, [&](const std::string&, const nn::Parameter& p) {
                return layout == 2 && p.sizes().ndim() > 1 ? Placements{shard(0)} : Placements{replicate()};
              });
              const auto put = [&](const Tensor& t) {
                return dist::on_ranks(mesh, t, {layout == 0 ? replicate() : shard(0)});
              };
              std::vector<Tensor> found;
              try {
                found = outcome_of(c, *module, put, put);
              } catch (const Error& error) {
                throw std::logic_error(fmt::format("{}; {}", error.what(), about));
              }
              const size_t count = c.takes_divided_tokens ? 1 + c.inputs.size() : expected.size();
              for (size_t k = 0; k < count; ++k)
                dist::require_whole(found[k], expected[k], fmt::format("tensor {} of {}", k, about));
            },
            dist::kShortTimeout);
      }
    }
  }
}

TEST(ModulesOnMeshes, NoneIsMissing) {
  // Bases, what takes the rows or tokens of this rank inside an MoE, tables of TableBatchedEmbeddingBags, and what has
  // no gradients.
  std::set<std::string> called{
      "Table", "Conv", "GroupedExperts", "Router", "Weight", "Rows", "IntNBitTableBatchedEmbeddingBags"};
  for (const ModuleCase& c : cases()) {
    std::istringstream words(c.name);
    for (std::string word; words >> word;) called.insert(word);
  }
  int found = 0;
  for (const auto& file : std::filesystem::directory_iterator(TUTTI_SOURCE_DIR "/tutti/nn")) {
    if (file.path().extension() != ".h") continue;
    std::ifstream text(file.path());
    for (std::string line; std::getline(text, line);) {
      // "class Linear : public Module {"
      std::istringstream words(line);
      std::string kind, name, colon, base;
      words >> kind >> name >> colon >> base;
      if (base == "public") words >> base;
      if ((kind != "class" && kind != "struct") || colon != ":" ||
          (base != "Module" && base != "Table" && base != "Conv"))
        continue;
      ++found;
      EXPECT_TRUE(called.contains(name)) << name << " is a module of tutti/nn; add a case of it";
    }
  }
  EXPECT_GT(found, 15);
}

}  // namespace
}  // namespace tutti::parallel
