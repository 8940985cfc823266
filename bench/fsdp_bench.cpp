#include "bench/fsdp_bench.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "tutti/autograd/tape.h"
#include "tutti/autograd/use_sink.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/nn/module.h"
#include "tutti/ops/creation.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/checkpoint/background_saver.h"
#include "tutti/train/checkpoint/checkpoint_tensors.h"

namespace tutti::bench {
namespace {

constexpr int64_t kColumns = 1024;

struct Group final : nn::Module {
  explicit Group(int64_t nbytes) {
    // As many parameters as a block of a transformer has.
    for (int i = 0; i < 8; ++i)
      weights.push_back(register_parameter(fmt::format("weight_{}", i), {nbytes / 8 / kColumns / 4, kColumns},
                                           nn::Init::normal(0.02)));
  }
  std::vector<nn::Parameter> weights;
};

Timing timing_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples.front(), samples[samples.size() / 2]};
}

// The same bytes, written and synced by one process without any format: what a save is compared with.
double write_plainly(const std::filesystem::path& path, int64_t nbytes) {
  const std::vector<std::byte> bytes(static_cast<size_t>(nbytes), std::byte{1});
  const double begin = now_us(MeasuredTime::wall);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int64_t written = 0;
  while (file >= 0 && written < nbytes) {
    const ssize_t n = write(file, bytes.data() + written, static_cast<size_t>(nbytes - written));
    if (n <= 0) break;
    written += n;
  }
  const bool is_synced = file >= 0 && fsync(file) == 0;
  if (file >= 0) close(file);
  TUTTI_CHECK_ENV(written == nbytes && is_synced, "cannot write {} bytes to '{}'", nbytes, path.string());
  return now_us(MeasuredTime::wall) - begin;
}

class Bench {
 public:
  Bench(const FsdpCase& problem, comm::ProcessGroup& group, const std::function<void(const FsdpRow&)>& report)
      : problem_(problem),
        group_(group),
        report_(report),
        mesh_(dist::mesh_from_group(group.shared_from_this(), "cpu")) {}

  void run() {
    const NoGradScope no_grad;
    unshard(DType::f32);
    unshard(DType::bf16);
    reduce();
    checkpoint();
  }

 private:
  int repeats() const { return problem_.small ? 2 : 30; }
  void row(const std::string& what, int64_t nbytes, int times, const std::function<void()>& before,
           const std::function<void()>& call) {
    std::vector<double> samples;
    for (int i = 0; i < times; ++i) {
      before();
      group_.barrier();
      const double begin = now_us(MeasuredTime::wall);
      call();
      samples.push_back(now_us(MeasuredTime::wall) - begin);
    }
    group_.barrier();
    if (group_.rank() == 0) report_({what, nbytes, timing_of(std::move(samples))});
  }

  void unshard(DType dtype) {
    Group module(problem_.group_bytes);
    module.to(dtype);
    const parallel::ShardedModule sharded = parallel::fully_shard(module, {.mesh = mesh_});
    nn::initialize(module);
    sharded.unshard();
    const auto step = [&] {
      for (const nn::Parameter& p : module.weights) p.will_change();
      for (const nn::Parameter& p : module.weights) p.changed();
    };
    const std::string name(name_of(dtype));
    row(fmt::format("unshard in {}, after a step", name), sharded.copy_bytes(), repeats(), step,
        [&] { sharded.unshard(); });
    row(
        fmt::format("unshard in {}, after reshard", name), sharded.copy_bytes(), repeats(), [&] { sharded.reshard(); },
        [&] { sharded.unshard(); });
  }

  void reduce() {
    Group module(problem_.group_bytes);
    const parallel::ShardedModule sharded = parallel::fully_shard(module, {.mesh = mesh_});
    nn::initialize(module);
    std::vector<Tensor> leaves;
    for (const nn::Parameter& p : module.weights) leaves.push_back(p.leaf());
    parallel::Shards shards(std::bit_ceil(static_cast<uint64_t>(group_.size())), &group_, leaves);
    row(
        "reduce gradients to the ranks that store them", problem_.group_bytes, repeats(), [] {},
        [&] {
          for (parallel::Shard& shard : shards.step(0)) {
            for (size_t p = leaves.size(); p-- > 0;) {
              shard.sink()->use(static_cast<int32_t>(p), 0, ones(leaves[p].sizes()));
              shard.sink()->finished(static_cast<int32_t>(p));
            }
            shard.add(ones({1}));
          }
          shards.finish();
        });
  }

  void checkpoint() {
    Group module(problem_.saved_bytes);
    const parallel::ShardedModule sharded = parallel::fully_shard(module, {.mesh = mesh_});
    nn::initialize(module);
    const train::NamedTensors tensors = train::tensors_of(module);
    namespace fs = std::filesystem;
    const fs::path folder = problem_.folder.empty() ? fs::temp_directory_path() : fs::path(problem_.folder);
    const fs::path file = folder / fmt::format("tutti-bench-fsdp-{}.safetensors", getpid()),
                   plain = folder / fmt::format("tutti-bench-fsdp-{}.bin", getpid());
    const int times = problem_.small ? 2 : 7;
    const auto remove = [&] {
      if (group_.rank() == 0) fs::remove(file);
    };
    row("save: write and sync", problem_.saved_bytes, times, remove,
        [&] { train::write_tensors(file, tensors, {}, &group_); });
    row(
        "digests of what was saved", problem_.saved_bytes, times, [] {},
        [&] { train::digests_of_files({file}, &group_); });
    row("load", problem_.saved_bytes, times, [] {}, [&] { train::read_tensors(SafetensorsShards(file), tensors); });
    const auto optimizer = optim::make_sgd(module.named_parameters());
    const fs::path saves = folder / fmt::format("tutti-bench-fsdp-{}", getpid());
    train::BackgroundSaver saver(&group_, module, *optimizer);
    const auto save = [&] { saver.save(saves, module, *optimizer, {.step = 1}, 0); };
    row("save in the background, until training goes on", problem_.saved_bytes, times, [&] { saver.wait(); }, save);
    row(
        "save in the background, until parameters change at once", problem_.saved_bytes, times, [&] { saver.wait(); },
        [&] {
          save();
          saver.before_change();
        });
    // As much as a forward and backward takes at least.
    const auto save_and_compute = [&] {
      saver.wait();
      save();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    };
    row("save in the background, what 50 ms later is left to copy", problem_.saved_bytes, times, save_and_compute,
        [&] { saver.before_change(); });
    saver.wait();
    std::vector<double> baseline;
    for (int i = 0; i < times && group_.rank() == 0; ++i) {
      fs::remove(plain);
      baseline.push_back(write_plainly(plain, problem_.saved_bytes));
    }
    group_.barrier();
    if (group_.rank() != 0) return;
    report_(
        {"write and sync the same bytes plainly, one process", problem_.saved_bytes, timing_of(std::move(baseline))});
    fs::remove(file);
    fs::remove(plain);
    fs::remove_all(saves);
  }

  const FsdpCase& problem_;
  comm::ProcessGroup& group_;
  const std::function<void(const FsdpRow&)>& report_;
  const dist::Mesh mesh_;
};

}  // namespace

void run_fsdp_bench(const FsdpCase& given, const std::function<void(const FsdpRow&)>& report) {
  FsdpCase problem = given;
  if (problem.small) problem.group_bytes = problem.saved_bytes = 1 << 20;
  comm::run_ranks(problem.ranks,
                  [&](comm::ProcessGroup& group) {
                    RankContext::current().set_threads(1);
                    Bench(problem, group, report).run();
                  },
                  {.transport = problem.transport});
}

}  // namespace tutti::bench
