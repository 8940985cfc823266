// Sharded parameters have memory before they have values: reads are refused until something has written them, whatever
// it is.
#include "tests/parallel/support/sharded_training.h"
#include "tests/support/message_of.h"
#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/inplace.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

void expect_refusal(const std::string& message, const std::string& name) {
  if (!message.starts_with("parameter '" + name + "' [") ||
      !message.ends_with("is sharded, and has no values yet; call nn::initialize(model), or load weights, on all ranks "
                         "before it is read"))
    throw InternalError(fmt::format("parameter '{}': {}", name, message));
}

void on_ranks(const std::function<void(comm::ProcessGroup&)>& function) {
  for (const int ranks : {1, 2, 3}) {
    for (const char* transport : {"threads", "gloo"}) comm::run_ranks(ranks, function, {.transport = transport});
  }
}

struct Sharded {
  explicit Sharded(const comm::ProcessGroup& group, DType dtype = DType::f32) {
    if (dtype != DType::f32) model.to(dtype);
    for (nn::Child<Block>& block : *model.blocks) fully_shard(*block, {.mesh = mesh_for(group, 1)});
    root.emplace(fully_shard(model, {.mesh = mesh_for(group, 1)}));
  }
  Tensor losses() const { return model.losses(numbers(0, 0, 0), numbers(0, 0, 5), false); }
  Model model;
  std::optional<ShardedModule> root;
};

TEST(ShardedValues, AreAskedForBeforeTheyAreRead) {
  on_ranks([](comm::ProcessGroup& group) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Sharded s(group, dtype);
      expect_refusal(message_of([&] { s.losses(); }), "embed.weight");
      expect_refusal(message_of([&] { s.model.frozen.use(); }), "frozen");
      expect_refusal(message_of([&] { (*s.model.blocks)[0]->up->weight.use(); }), "blocks.0.up.weight");
      expect_refusal(message_of([&] { s.model.state_dict(); }), "frozen");
      const auto step =
          compile([&](const Tensor& tokens) { return s.model.losses(tokens, tokens, false); }, {.name = "losses"});
      expect_refusal(message_of([&] { step(numbers(0, 0, 0)); }), "embed.weight");
      nn::initialize(s.model);
      s.losses();
      step(numbers(0, 0, 0));
      s.model.state_dict();
    }
  });
}

// What is read of a group does not depend on the parameters beside it.
TEST(ShardedValues, MayComeFromAPartOfTheWeights) {
  on_ranks([](comm::ProcessGroup& group) {
    seed_all(5);
    Model whole;
    nn::initialize(whole);
    nn::StateDict part = whole.state_dict();
    std::erase_if(part, [](const auto& entry) { return entry.first == "frozen" || entry.first == "blocks.1.up.bias"; });
    Sharded s(group);
    const nn::LoadReport report = s.model.load_state_dict(part, {.strict = false});
    TUTTI_CHECK(report.missing.size() == 2, "{}", report.to_string());
    s.model.embed->weight.use();
    (*s.model.blocks)[0]->up->bias.use();
    expect_refusal(message_of([&] { s.losses(); }), "blocks.1.up.bias");
    expect_refusal(message_of([&] { s.model.frozen.use(); }), "frozen");
    (*s.model.blocks)[1]->up->bias.initialize("blocks.1.up.bias");
    s.model.frozen.assign(ones({1}));
    s.losses();
  });
}

TEST(ShardedValues, MayBeWrittenByOtherCode) {
  on_ranks([](comm::ProcessGroup& group) {
    Sharded s(group);
    const NoGradScope no_grad;
    for (const nn::NamedParameter& p : s.model.named_parameters()) {
      if (p.name == "embed.weight") {
        fill_(p.parameter.master(), 0.5);  // an op tells by itself
      } else if (p.name == "frozen") {
        p.parameter.changed();
      } else {
        p.parameter.will_change();
        fill_(p.parameter.stored(), 0.5);
      }
    }
    s.losses();
    s.model.state_dict();
  });
}

TEST(ShardedValues, ArePresentInMemoryOfTheCallerAndInAModelThatHadThem) {
  on_ranks([](comm::ProcessGroup& group) {
    Model given;
    std::map<std::string, Tensor> memory;
    for (const nn::NamedParameter& p : given.named_parameters())
      memory[p.name] = full(to_shape(p.parameter.sizes()), 2.0);
    fully_shard(given,
                {.mesh = mesh_for(group, 1), .memory = [&](const nn::NamedParameter& p) { return memory.at(p.name); }});
    TUTTI_CHECK(cast(given.embed->weight.use(), DType::f32).data<float>()[0] == 2.0f, "other values");
    given.state_dict();
    group.barrier();

    Model filled;
    nn::initialize(filled);
    fully_shard(filled, {.mesh = mesh_for(group, 1)});
    filled.losses(numbers(0, 0, 0), numbers(0, 0, 5), false);
    filled.state_dict();
  });
}

}  // namespace
}  // namespace tutti::parallel
