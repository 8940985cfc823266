#include "bench/dispatch_bench.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

#include "tutti/autograd/backward.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/dist/device_mesh.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/parallel/dispatch_counts.h"
#include "tutti/parallel/expert_parallel.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/tensor/host_read.h"

namespace tutti::bench {
namespace {

using parallel::ExpertExchange;

struct Way {
  const char* name;
  bool is_divided;
  ExpertExchange exchange;
};
constexpr Way kWays[] = {{"local", false, ExpertExchange::standard},
                         {"standard", true, ExpertExchange::standard},
                         {"standard_exact", true, ExpertExchange::standard_exact},
                         {"direct_store", true, ExpertExchange::direct_store},
                         {"gather_on_read", true, ExpertExchange::gather_on_read}};

// Counts the calls of ops on this thread.
struct OpCounts {
  int64_t kernels = 0, collectives = 0, copies = 0, host_reads = 0;
};
thread_local OpCounts* counted = nullptr;

class CountingStage final : public Stage {
 public:
  static StageMask mask() {
    static CountingStage stage;
    static const StageMask registered = register_stage("counted ops", StagePlace::kernels, &stage);
    return registered;
  }
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    const std::string_view name = call.op.name;
    if (counted != nullptr && call.op.view == nullptr && call.op.num_outputs > 0) {
      ++counted->kernels;
      if (name.starts_with("all_to_all")) ++counted->collectives;
      if (name == "all_to_all_v_padded_single") ++counted->host_reads;  // of the splits
      // One row for each row: those that have arrived, in the order of the experts.
      if (name == "dispatch_rows" && call[0].extents()[0] == call[1].extents()[0]) ++counted->copies;
    }
    const StageScope off(0, mask());
    apply(call.op, call.inputs, call.attrs, outputs);
  }
};

// Counts what the host reads while it lives.
class CountedReads final : public HostReads {
 public:
  explicit CountedReads(OpCounts& counts) : counts_(counts), previous_(set_current(this)) {}
  ~CountedReads() { set_current(previous_); }
  CountedReads(const CountedReads&) = delete;
  CountedReads& operator=(const CountedReads&) = delete;
  Tensor elements_of(const Tensor& t) override {
    if (t.numel() == 1 && t.dtype() == DType::i64) ++counts_.host_reads;
    return t;
  }

 private:
  OpCounts& counts_;
  HostReads* const previous_;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  return x.nbytes() == y.nbytes() && std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

class Bench {
 public:
  Bench(const DispatchCase& problem, comm::ProcessGroup& group, const std::function<void(const DispatchRow&)>& report)
      : problem_(problem),
        group_(group),
        report_(report),
        mesh_(dist::init_device_mesh("cpu", {group.size()}, {.names = {"ep"}})) {}

  void run(const char* load) {
    const MoECase& p = problem_.layer;
    const bool to_one = std::string_view(load) == "one";
    const auto random = [&](std::string_view name) {
      return cast(uniform({p.tokens, p.dim}, random_key(fmt::format("{} {}", name, group_.rank())), -1.0, 1.0),
                  p.dtype);
    };
    const Tensor x = requires_grad_(random("x")), cotangent = random("cotangent");
    Tensor y_of_local, g_of_local;
    for (const Way& way : kWays) {
      seed_all(1);
      nn::MoE layer({.dim = p.dim,
                     .hidden_dim = p.hidden_dim,
                     .router = {.num_experts = p.experts,
                                .top_k = p.top_k,
                                .score_func = nn::ScoreFunction::softmax,
                                .route_norm = true,
                                .init = nn::Init::normal(0.1)}});
      layer.to(p.dtype);
      if (way.is_divided) parallel::expert_parallel(layer, mesh_, {.exchange = way.exchange});
      nn::initialize(layer);
      if (to_one) {
        const Tensor bias = layer.gate->expert_bias.use();
        std::fill_n(bias.data<float>(), p.experts / group_.size(), 1e3F);
      }
      Tensor y;
      const auto step = [&] {
        layer.zero_grad();
        set_grad(x, {});
        y = layer.forward(x);
        backward(y, cotangent);
      };
      DispatchRow row{.way = way.name, .load = load, .ranks = group_.size()};
      step();
      if (!way.is_divided) y_of_local = y, g_of_local = grad_of(x);
      row.verified = same_bits(y, y_of_local) && same_bits(grad_of(x), g_of_local);
      count(row, step);
      std::vector<double> samples;
      for (int i = 0; i < problem_.steps; ++i) {
        group_.barrier();
        const double begin = now_us(MeasuredTime::wall);
        step();
        group_.barrier();
        samples.push_back(now_us(MeasuredTime::wall) - begin);
      }
      std::sort(samples.begin(), samples.end());
      row.time = {samples.front(), samples[samples.size() / 2]};
      int64_t wrong = row.verified ? 0 : 1;
      group_.all_reduce_values(std::span(&wrong, 1));
      row.verified = wrong == 0;
      if (group_.rank() == 0) report_(row);
    }
  }

 private:
  void count(DispatchRow& row, const std::function<void()>& step) {
    OpCounts counts;
    const int64_t barriers = parallel::dispatch_counts().barriers, sent = RankContext::current().sent_bytes;
    counted = &counts;
    {
      const CountedReads reads(counts);
      const StageScope on(CountingStage::mask(), 0);
      step();
    }
    counted = nullptr;
    row.kernels = counts.kernels;
    row.copies = counts.copies;
    row.host_reads = counts.host_reads;
    row.barriers = counts.collectives + parallel::dispatch_counts().barriers - barriers;
    row.sent_bytes = RankContext::current().sent_bytes - sent;
    row.room_bytes = parallel::dispatch_counts().memory_bytes;
  }

  const DispatchCase& problem_;
  comm::ProcessGroup& group_;
  const std::function<void(const DispatchRow&)>& report_;
  const dist::Mesh mesh_;
};

}  // namespace

void run_dispatch_bench(const DispatchCase& problem, const std::function<void(const DispatchRow&)>& report) {
  comm::run_ranks(problem.ranks,
                  [&](comm::ProcessGroup& group) {
                    RankContext::current().set_threads(1);
                    Bench bench(problem, group, report);
                    for (const char* load : {"even", "one"}) bench.run(load);
                  },
                  {.transport = problem.transport});
}

}  // namespace tutti::bench
