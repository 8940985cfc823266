// Lesson 9: data-parallel training. The batch of a step is cut into virtual shards, which any number of ranks share,
// and every loss and weight has the same bits. Under `tutti launch -n 3 -- build/release/example_09_data_parallel` the
// ranks are processes and train together; started alone, the program tries several numbers of ranks as threads.
// Last line of output: 1, 2, 3, 4 and 6 ranks: same loss, same weights
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "tutti/autograd/backward.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/hash.h"
#include "tutti/nn/activation.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/linear.h"
#include "tutti/ops.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"

using namespace tutti;

constexpr int64_t kShards = 8, kRows = 32;  // rows of a shard

struct Classifier : nn::Module {
  Classifier() { net->add<nn::Linear>(2, 64).add<nn::ReLU>().add<nn::Dropout>(0.1).add<nn::Linear>(64, 2); }
  Tensor forward(const Tensor& x) const { return net(x); }
  nn::Child<nn::Sequential> net{this, "net"};
};

// Whether the point lies in the ring between the circles of radius 0.5 and 0.9.
Tensor labels_of(const Tensor& points) {
  Tensor labels = Tensor::empty({kRows}, DType::i32);
  for (int64_t i = 0; i < kRows; ++i) {
    const float* p = points.data<float>() + 2 * i;
    const float square = p[0] * p[0] + p[1] * p[1];
    labels.data<int32_t>()[i] = square > 0.25f && square < 0.81f;
  }
  return labels;
}

// Trains on the ranks of `group`; what came out, as text.
std::string result_of(comm::ProcessGroup& group) {
  seed_all(1);
  Classifier model;
  nn::initialize(model);
  const auto optimizer = optim::make_adamw(model.named_parameters(), {.lr = 0.01});
  parallel::Shards shards(kShards, &group, nn::leaves_of(optimizer->parameters()));
  double loss = 0;
  for (int step = 1; step <= 200; ++step) {
    for (parallel::Shard& shard : shards.step(step)) {  // what is drawn depends on step and shard, not on the rank
      const Tensor points = uniform({kRows, 2}, -1.0, 1.0);
      shard.backward(cross_entropy(model.forward(points), labels_of(points)), 1.0 / (kShards * kRows));
    }
    loss = shards.finish_step(*optimizer).loss / (kShards * kRows);
  }
  uint64_t weights = 0;
  for (const auto& [name, values] : model.state_dict())
    weights = hash64(values.raw_data(), static_cast<size_t>(values.nbytes()), weights);
  return fmt::format("loss {:a}, weights {:016x}", loss, weights);
}

int main() {
  if (std::getenv("RANK") != nullptr) {  // set by tutti launch, as by torchrun
    try {
      const auto group = comm::init_process_group();
      const std::string result = result_of(*group);
      if (group->rank() == 0) std::printf("%d ranks: %s\n", group->size(), result.c_str());
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    return 0;
  }
  std::set<std::string> results;
  std::mutex mutex;
  for (const int ranks : {1, 2, 3, 4, 6}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const std::string result = result_of(group);
      const std::lock_guard lock(mutex);
      results.insert(result);
    });
  }
  for (const std::string& result : results) std::printf("%s\n", result.c_str());
  std::printf("1, 2, 3, 4 and 6 ranks: %s\n", results.size() == 1 ? "same loss, same weights" : "other bits");
}
