#include "bench/layouts_bench.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/kernel.h"
#include "tutti/core/error.h"
#include "tutti/models/decoder_config.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/config/data_degrees.h"
#include "tutti/train/report/metrics.h"
#include "tutti/train/step/run_model.h"
#include "tutti/train/step/step_plan.h"

extern char** environ;

namespace tutti::bench {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr const char* kThisProgram = "/proc/self/exe";

std::atomic<pid_t> running{0};  // the process group of the child that is waited for

// A run of this program as the leader of a process group, its output in a file. What still runs ends with the object.
class Child {
 public:
  Child(const Words& arguments, const Words& variables, const fs::path& output) {
    Words environment = variables;
    for (char** entry = environ; *entry; ++entry) {
      const std::string_view text = *entry;
      const bool is_set = std::any_of(variables.begin(), variables.end(), [&](const std::string& v) {
        return text.starts_with(v.substr(0, v.find('=') + 1));
      });
      if (!is_set) environment.emplace_back(text);
    }
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    // Signals that this process keeps for itself are not blocked there.
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    const int error =
        posix_spawn(&pid_, kThisProgram, &files, &how, pointers(arguments).data(), pointers(environment).data());
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    TUTTI_CHECK_ENV(error == 0, "cannot start {}: {}", kThisProgram, detail::errno_text(error));
    running = pid_;
  }
  ~Child() {
    if (has_ended_) return;
    kill();
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void kill() const { ::kill(-pid_, SIGKILL); }
  // The exit status, 128 + n after signal n.
  int wait() { return take(0); }
  bool has_ended() { return take(WNOHANG), has_ended_; }

 private:
  static std::vector<char*> pointers(const Words& words) {
    std::vector<char*> result;
    for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
    result.push_back(nullptr);
    return result;
  }
  int take(int options) {
    if (has_ended_) return status_;
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(pid_, &status, options)) < 0 && errno == EINTR) {
    }
    if (ended == 0) return 0;
    has_ended_ = true;
    running = 0;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return status_;
  }
  pid_t pid_ = 0;
  bool has_ended_ = false;
  int status_ = 0;
};

std::string end_of(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream all;
  all << in.rdbuf();
  const std::string text = all.str();
  constexpr size_t kShown = 1500;
  return text.size() <= kShown ? text : "..." + text.substr(text.size() - kShown);
}

int64_t middle(const LayoutsProblem& problem) { return problem.steps / 2; }

train::Config configuration_of(const LayoutsProblem& problem) {
  train::Config config = train::load_config(problem.config);
  train::apply_environment(config);
  for (const std::string& flag : problem.overrides) train::apply_override(config, flag);
  return config;
}

// The flags of a row are -n, a number, and keys.
train::Config configuration_of(const LayoutsProblem& problem, const Words& flags) {
  train::Config config = configuration_of(problem);
  config.parallelism.data_parallel_replicate_degree = -1;
  for (size_t i = 2; i < flags.size(); ++i) train::apply_override(config, flags[i]);
  return config;
}

// Ranks must share work, memory and bytes: one that computes, holds or sends what another layout would is none of its
// kind, though its bits are right. Small things are the same on every rank, and what a kernel needs for itself is not
// planned.
std::string excess_of(const LayoutResult& result, const LayoutResult& base, const train::Config& config,
                      int64_t ranks) {
  constexpr double kTrust = 1.1, kMemorySlack = 256 << 10, kBytesSlack = 64 << 10;
  const train::DataDegrees degrees = train::data_degrees(config.parallelism, ranks);
  const int64_t shards = config.numerics.virtual_shards;
  const double share = static_cast<double>((shards + degrees.data() - 1) / degrees.data()) /
                       static_cast<double>(shards * degrees.tensor);
  const bool computes_again =
      config.activation_checkpoint.mode != "none" || config.training.loss_max_bytes > 0;  // forward, or the logits
  const double again = computes_again ? 4.0 / 3.0 : 1.0;
  const auto flops = static_cast<double>(result.product_flops),
             most_flops = static_cast<double>(base.product_flops) * share * again;
  const auto mib = [](auto bytes) { return static_cast<double>(bytes) / (1 << 20); };
  if (flops > kTrust * most_flops)
    return fmt::format("rank 0 computes {:.2f} GFLOP in its matrix products, and its share is {:.2f}", flops / 1e9,
                       most_flops / 1e9);
  if (static_cast<double>(result.peak_bytes) > kTrust * static_cast<double>(result.planned_peak_bytes) + kMemorySlack)
    return fmt::format("rank 0 needs {:.1f} MiB, and {:.1f} are planned", mib(result.peak_bytes),
                       mib(result.planned_peak_bytes));
  if (static_cast<double>(result.sent_bytes) > kTrust * static_cast<double>(result.planned_sent_bytes) + kBytesSlack)
    return fmt::format("rank 0 sends {:.1f} MiB a step, and {:.1f} are planned", mib(result.sent_bytes),
                       mib(result.planned_sent_bytes));
  return "";
}

Words train_command(const LayoutsProblem& problem, const Layout& layout, const fs::path& folder) {
  Words command{"tutti", "train", problem.config, "--quiet"};
  command.insert(command.end(), problem.overrides.begin(), problem.overrides.end());
  // A short run warms up in the time it has.
  const int64_t warmup = std::min(configuration_of(problem).lr_scheduler.warmup_steps, problem.steps);
  for (const std::string& flag :
       {fmt::format("--training.steps={}", problem.steps), fmt::format("--lr_scheduler.warmup_steps={}", warmup),
        fmt::format("--checkpoint.every={}", middle(problem)), std::string("--checkpoint.keep_latest=-1"),
        std::string("--validation.every=0"), std::string("--validation.sample_tokens=0"),
        fmt::format("--run.dir={}", folder.string()), fmt::format("--run.name={}", layout.name),
        std::string("--parallelism.data_parallel_replicate_degree=-1")}) {
    command.push_back(flag);
  }
  return command;
}

void expect_done(int status, const Layout& layout, const fs::path& output) {
  if (status == 0) return;
  const std::string message =
      fmt::format("layout {}: tutti train ended with status {}: {}", layout.name, status, end_of(output));
  if (status == 2) throw UsageError(message);
  throw EnvironmentError(message);
}

// The ranks of a launcher that was killed end a moment after it, and the run is theirs until then (run_folder.h).
void wait_until_free(const fs::path& run) {
  const int lock = open((run / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return;
  bool is_free = false;
  for (int i = 0; i < 2000 && !is_free; ++i) {
    is_free = flock(lock, LOCK_EX | LOCK_NB) == 0;
    if (!is_free) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  close(lock);  // what a rank still holds, the next start tells
}

std::string contents_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

pid_t parent_of(pid_t process) {
  const std::string stat = contents_of(fmt::format("/proc/{}/stat", process));
  std::istringstream words(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));  // behind the program's name
  std::string state;
  pid_t parent = 0;
  words >> state >> parent;
  return parent;
}

// The process of a rank that `launcher` has started, 0 when there is none.
pid_t process_of_rank(pid_t launcher, int rank) {
  const std::string wanted = fmt::format("LOCAL_RANK={}", rank);
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    pid_t ancestor = process;
    while (ancestor > 1 && ancestor != launcher) ancestor = parent_of(ancestor);
    if (ancestor != launcher || process == launcher) continue;
    std::istringstream variables(contents_of(entry.path() / "environ"));
    for (std::string variable; std::getline(variables, variable, '\0');) {
      if (variable == wanted) return process;
    }
  }
  return 0;
}

// Kills one rank; nothing when the run has ended meanwhile.
void kill_rank(Child& child, int rank) {
  while (!child.has_ended()) {
    if (const pid_t process = process_of_rank(child.pid(), rank); process > 0) {
      ::kill(process, SIGKILL);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Once the first checkpoint is whole, kills the run with all its ranks, or one rank, whose loss ends the run.
void kill_in_the_middle(Child& child, const Layout& layout, const fs::path& run, const LayoutsProblem& problem,
                        const fs::path& output) {
  const fs::path checkpoint = run / "checkpoint" / fmt::format("step-{}", middle(problem));
  while (!fs::exists(checkpoint)) {
    if (child.has_ended()) expect_done(child.wait(), layout, output);
    if (child.has_ended()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!layout.loses_a_rank) child.kill();
  else kill_rank(child, 1);
  const int status = child.wait();
  TUTTI_CHECK_ENV(status != 0 || !layout.loses_a_rank,
                  "layout {}: the run ended before its rank could be killed; let it take more steps", layout.name);
  wait_until_free(run);
}

}  // namespace

namespace {

std::vector<Layout> chosen(std::vector<Layout> rows, const LayoutsProblem& problem) {
  if (problem.only.empty()) return rows;
  std::vector<std::string> names, wanted = problem.only;
  for (const Layout& row : rows) names.push_back(row.name);
  for (const std::string& name : problem.only) {
    const auto row = std::find(names.begin(), names.end(), name);
    TUTTI_CHECK(row != names.end(), "bench layouts: '{}' is no row{}; expected some of {}", name,
                problem.all ? "" : ", at least without --all", fmt::join(names, ", "));
    wanted.push_back(rows[static_cast<size_t>(row - names.begin())].base);
  }
  std::erase_if(rows,
                [&](const Layout& row) { return std::find(wanted.begin(), wanted.end(), row.name) == wanted.end(); });
  return rows;
}

bool has_norms_of_heads(const train::Config& config) {
  const auto model = train::build_model(config);
  const std::vector<models::LayerConfig>& layers = model->config().layers;
  return std::any_of(layers.begin(), layers.end(),
                     [](const models::LayerConfig& layer) { return layer.attention.query_key_norms; });
}

}  // namespace

std::vector<Layout> layouts_of(const LayoutsProblem& problem) {
  const auto ranks = [](int n, const char* threads = "1") {
    return Words{"-n", std::to_string(n), fmt::format("--runtime.threads={}", threads)};
  };
  const auto with = [](Words flags, std::initializer_list<std::string> more) {
    flags.insert(flags.end(), more);
    return flags;
  };
  const auto divided = [](Words flags, int degree) {
    flags.push_back(fmt::format("--parallelism.data_parallel_shard_degree={}", degree));
    return flags;
  };
  std::vector<Layout> rows{
      {kReference, ranks(1), {}},
      {"two-threads", ranks(1, "2"), {}},
      {"two-ranks", with(ranks(2), {"--runtime.transport=shm"}), {}},
      {"two-ranks-gloo", with(ranks(2), {"--runtime.transport=gloo"}), {}},
      {"three-ranks", ranks(3), {}},
      {"three-ranks-every-round", with(ranks(3), {"--parallelism.data_parallel_schedule=every_round"}), {}},
      {"two-ranks-as-threads", with(ranks(2), {"--runtime.transport=threads"}), {}},
      {"four-ranks", with(ranks(4), {"--runtime.transport=shm"}), {}},
      {"four-ranks-gloo", with(ranks(4), {"--runtime.transport=gloo"}), {}},
      {"fsdp-two-ranks", divided(ranks(2), 2), {}},
      {"fsdp-three-ranks-compiled", with(divided(ranks(3), 3), {"--training.compile=true"}), {}},
      {"fsdp-four-ranks-gloo", with(divided(ranks(4), 4), {"--runtime.transport=gloo"}), {}},
      {"hsdp-two-by-two", divided(ranks(4), 2), {}},
      {"compiled", with(ranks(1), {"--training.compile=true"}), {}},
      {"compiled-two-ranks", with(ranks(2), {"--training.compile=true"}), {}},
      {"recomputed", with(ranks(2), {"--activation_checkpoint.mode=full"}), {}},
      {"loss-in-chunks", with(ranks(1), {"--training.loss_max_bytes=1048576"}), {}},
      {"killed-then-two-ranks", ranks(1), {}, ranks(2)},
      {"killed-then-fsdp-three-ranks", ranks(2), {}, divided(ranks(3), 3)},
      {"killed-then-one-rank", ranks(4), {}, with(ranks(1, "2"), {"--training.compile=true"})},
  };
  // Tensor parallelism, where the model allows it.
  const auto products = [&](Words flags, int degree) {
    flags.push_back(fmt::format("--parallelism.tensor_parallel_degree={}", degree));
    return flags;
  };
  const auto why_not = [](const train::Config& config) -> std::string {
    try {
      train::check_tensor_parallel(config);
      train::check_expert_parallel(config);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  const auto why_not_products = [&](int degree) {
    train::Config config = configuration_of(problem);
    config.parallelism.tensor_parallel_degree = degree;
    return why_not(config);
  };
  rows.push_back(
      {.name = "tp-two-ranks", .flags = products(ranks(2), 2), .variables = {}, .why_not = why_not_products(2)});
  rows.push_back(
      {.name = "dp-two-by-tp-two", .flags = products(ranks(4), 2), .variables = {}, .why_not = why_not_products(2)});
  rows.push_back({.name = "fsdp-two-by-tp-two",
                  .flags = divided(products(ranks(4), 2), 2),
                  .variables = {},
                  .why_not = why_not_products(2)});
  rows.push_back({.name = "killed-tp-then-three-ranks",
                  .flags = products(ranks(2), 2),
                  .variables = {},
                  .resumed_with = ranks(3),
                  .why_not = why_not_products(2)});
  if (problem.all) {
    rows.push_back({.name = "tp-four-ranks-gloo",
                    .flags = with(products(ranks(4), 4), {"--runtime.transport=gloo"}),
                    .variables = {},
                    .why_not = why_not_products(4)});
    rows.push_back({.name = "tp-two-ranks-compiled",
                    .flags = with(products(ranks(2), 2), {"--training.compile=true"}),
                    .variables = {},
                    .why_not = why_not_products(2)});
    rows.push_back({.name = "tp-two-ranks-async",
                    .flags = with(products(ranks(2), 2),
                                  {"--training.compile=true", "--parallelism.enable_async_tensor_parallel=true"}),
                    .variables = {},
                    .why_not = why_not_products(2)});
    rows.push_back({.name = "fsdp-three-by-tp-two",
                    .flags = divided(products(ranks(6), 2), 3),
                    .variables = {},
                    .why_not = why_not_products(2)});
    rows.push_back(
        {.name = "fsdp-two-by-tp-two-compiled-gloo",
         .flags = with(divided(products(ranks(4), 2), 2), {"--runtime.transport=gloo", "--training.compile=true"}),
         .variables = {},
         .why_not = why_not_products(2)});
    rows.push_back({.name = "hsdp-two-by-two-by-tp-two",
                    .flags = divided(products(ranks(8), 2), 2),
                    .variables = {},
                    .why_not = why_not_products(2)});
    rows.push_back({.name = "killed-fsdp-tp-then-fsdp-three-ranks",
                    .flags = divided(products(ranks(4), 2), 2),
                    .variables = {},
                    .resumed_with = divided(ranks(3), 3),
                    .why_not = why_not_products(2)});
    rows.push_back({.name = "tp-two-ranks-without-sequence",
                    .flags = with(products(ranks(2), 2), {"--parallelism.enable_sequence_parallel=false"}),
                    .variables = {},
                    .why_not = why_not_products(2)});
  }
  // Expert parallelism, where the model has experts.
  const auto experts = [&](Words flags, int degree) {
    return with(flags, {fmt::format("--parallelism.expert_parallel_degree={}", degree)});
  };
  const auto why_no_experts = [&](int degree, int tensor = 1) {
    train::Config config = configuration_of(problem);
    config.parallelism.expert_parallel_degree = degree;
    config.parallelism.tensor_parallel_degree = tensor;
    return why_not(config);
  };
  rows.push_back(
      {.name = "ep-two-ranks", .flags = experts(ranks(2), 2), .variables = {}, .why_not = why_no_experts(2)});
  rows.push_back({.name = "fsdp-four-ranks-ep-two",
                  .flags = experts(divided(ranks(4), 4), 2),
                  .variables = {},
                  .why_not = why_no_experts(2)});
  rows.push_back({.name = "fsdp-four-ranks-ep-four",
                  .flags = experts(divided(ranks(4), 4), 4),
                  .variables = {},
                  .why_not = why_no_experts(4)});
  const auto by = [](Words flags, const char* exchange) {
    flags.push_back(std::string("--parallelism.expert_parallel_comm_backend=") + exchange);
    return flags;
  };
  rows.push_back({.name = "ep-two-ranks-direct-store-compiled",
                  .flags = by(with(experts(ranks(2), 2), {"--training.compile=true"}), "direct_store"),
                  .variables = {},
                  .why_not = why_no_experts(2)});
  rows.push_back({.name = "fsdp-two-by-tp-two-ep-four",
                  .flags = experts(divided(products(ranks(4), 2), 2), 4),
                  .variables = {},
                  .why_not = why_no_experts(4, 2)});
  if (problem.all) {
    rows.push_back({.name = "fsdp-four-ranks-ep-four-direct-store",
                    .flags = by(experts(divided(ranks(4), 4), 4), "direct_store"),
                    .variables = {},
                    .why_not = why_no_experts(4)});
    rows.push_back({.name = "fsdp-four-ranks-ep-two-gather-on-read",
                    .flags = by(experts(divided(ranks(4), 4), 2), "gather_on_read"),
                    .variables = {},
                    .why_not = why_no_experts(2)});
    rows.push_back({.name = "fsdp-four-by-tp-two-ep-four",
                    .flags = experts(divided(products(ranks(8), 2), 4), 4),
                    .variables = {},
                    .why_not = why_no_experts(4, 2)});
    rows.push_back({.name = "fsdp-four-by-tp-two-ep-four-compiled",
                    .flags = with(experts(divided(products(ranks(8), 2), 4), 4), {"--training.compile=true"}),
                    .variables = {},
                    .why_not = why_no_experts(4, 2)});
    rows.push_back({.name = "killed-ep-tp-then-fsdp-three-ranks",
                    .flags = experts(divided(products(ranks(4), 2), 2), 4),
                    .variables = {},
                    .resumed_with = divided(ranks(3), 3),
                    .why_not = why_no_experts(4, 2)});
    rows.push_back({.name = "six-ranks-ep-two-compiled",
                    .flags = with(experts(ranks(6), 2), {"--training.compile=true"}),
                    .variables = {},
                    .why_not = why_no_experts(2)});
    rows.push_back({.name = "fsdp-four-ranks-ep-two-gloo",
                    .flags = with(experts(divided(ranks(4), 4), 2), {"--runtime.transport=gloo"}),
                    .variables = {},
                    .why_not = why_no_experts(2)});
    rows.push_back({.name = "hsdp-two-by-four-ep-four-recomputed",
                    .flags = with(experts(divided(ranks(8), 4), 4), {"--activation_checkpoint.mode=full"}),
                    .variables = {},
                    .why_not = why_no_experts(4)});
    rows.push_back({.name = "killed-ep-then-three-ranks",
                    .flags = experts(ranks(2), 2),
                    .variables = {},
                    .resumed_with = ranks(3),
                    .why_not = why_no_experts(2)});
  }
  // Without TUTTI_CPU the best instruction set is used: another one is the row.
  const bool is_wide = codegen::has_wide_registers(codegen::cpu_target());
  if (is_wide) rows.push_back({"avx2", ranks(1), {"TUTTI_CPU=avx2"}});
  else
    rows.push_back({.name = "avx512",
                    .flags = ranks(1),
                    .variables = {"TUTTI_CPU=avx512"},
                    .why_not = "no AVX-512 on this processor, or TUTTI_CPU=avx2"});
  if (problem.all) {
    rows.push_back({"two-ranks-two-threads", ranks(2, "2"), {}});
    rows.push_back({"eight-ranks", ranks(8), {}});
    const std::string overlap = "--parallelism.data_parallel_overlap=backward",
                      thread = "--runtime.progress_thread=true";
    rows.push_back({"four-ranks-overlapped", with(ranks(4), {overlap}), {}});
    rows.push_back({"three-ranks-overlapped-gloo", with(ranks(3), {"--runtime.transport=gloo", overlap, thread}), {}});
    rows.push_back({"fsdp-four-ranks-overlapped", with(divided(ranks(4), 4), {overlap}), {}});
    rows.push_back({"fsdp-four-ranks-overlapped-gloo",
                    with(divided(ranks(4), 4), {"--runtime.transport=gloo", overlap, thread}),
                    {}});
    rows.push_back({"fsdp-three-ranks-every-round",
                    with(divided(ranks(3), 3), {"--parallelism.data_parallel_schedule=every_round"}),
                    {}});
    rows.push_back({"fsdp-six-ranks", divided(ranks(6), 6), {}});
    rows.push_back({"fsdp-three-ranks-as-threads", with(divided(ranks(3), 3), {"--runtime.transport=threads"}), {}});
    rows.push_back({"fsdp-three-ranks-recomputed-gloo",
                    with(divided(ranks(3), 3), {"--runtime.transport=gloo", "--activation_checkpoint.mode=full"}),
                    {}});
    rows.push_back({"fsdp-two-ranks-compiled-gloo",
                    with(divided(ranks(2), 2), {"--runtime.transport=gloo", "--training.compile=true"}),
                    {}});
    rows.push_back(
        {"fsdp-two-ranks-gloo-kept",
         with(divided(ranks(2), 2), {"--runtime.transport=gloo", "--parallelism.fsdp_reshard_after_forward=never"}),
         {}});
    rows.push_back({"hsdp-three-by-two-gloo", with(divided(ranks(6), 2), {"--runtime.transport=gloo"}), {}});
    rows.push_back({"killed-fsdp-then-one-rank", divided(ranks(4), 4), {}, ranks(1)});
    rows.push_back({"four-ranks-as-threads", with(ranks(4), {"--runtime.transport=threads"}), {}});
    rows.push_back({"five-ranks-gloo", with(ranks(5), {"--runtime.transport=gloo"}), {}});
    rows.push_back({"six-ranks-compiled", with(ranks(6), {"--training.compile=true"}), {}});
    rows.push_back({"killed-then-seven-ranks", ranks(3), {}, ranks(7)});
    rows.push_back({"five-ranks-every-round-compiled",
                    with(ranks(5), {"--parallelism.data_parallel_schedule=every_round", "--training.compile=true"}),
                    {}});
    rows.push_back(
        {"four-ranks-compiled-gloo", with(ranks(4), {"--runtime.transport=gloo", "--training.compile=true"}), {}});
    rows.push_back({"memory-budget",
                    with(ranks(1), {"--training.compile=true", "--activation_checkpoint.mode=memory_budget",
                                    "--activation_checkpoint.memory_budget=0"}),
                    {}});
    rows.push_back(
        {"recomputed-compiled", with(ranks(2), {"--training.compile=true", "--activation_checkpoint.mode=full"}), {}});
    rows.push_back({"no-kernel-cache", ranks(1), {"TUTTI_CACHE_LIMIT_MB=0"}});
    // Another dtype has other bits, and a reference of its own.
    const std::string bf16 = "--training.mixed_precision_param=bfloat16", bf16_base = "bf16-one-rank";
    rows.push_back({.name = bf16_base, .flags = with(ranks(1), {bf16}), .variables = {}, .base = bf16_base});
    rows.push_back({.name = "bf16-two-ranks", .flags = with(ranks(2), {bf16}), .variables = {}, .base = bf16_base});
    rows.push_back({.name = "bf16-fsdp-three-ranks",
                    .flags = with(divided(ranks(3), 3), {bf16}),
                    .variables = {},
                    .base = bf16_base});
    rows.push_back({.name = "bf16-fsdp-two-ranks-gloo-compiled",
                    .flags = with(divided(ranks(2), 2), {bf16, "--runtime.transport=gloo", "--training.compile=true"}),
                    .variables = {},
                    .base = bf16_base});
    if (codegen::cpu_target() > codegen::CpuTarget::avx512)
      rows.push_back({.name = "bf16-avx512-fsdp-two-ranks",
                      .flags = with(divided(ranks(2), 2), {bf16}),
                      .variables = {"TUTTI_CPU=avx512"},
                      .base = bf16_base});
    if (is_wide)
      rows.push_back({.name = "bf16-avx2-two-ranks-compiled",
                      .flags = with(ranks(2), {bf16, "--training.compile=true"}),
                      .variables = {"TUTTI_CPU=avx2"},
                      .base = bf16_base});
    // So does a model with dropout.
    const std::string dropout = "--model.dropout=0.1", dropout_base = "dropout-one-rank",
                      every_round = "--parallelism.data_parallel_schedule=every_round";
    rows.push_back({.name = dropout_base, .flags = with(ranks(1), {dropout}), .variables = {}, .base = dropout_base});
    rows.push_back({.name = "dropout-three-ranks-compiled",
                    .flags = with(ranks(3), {dropout, "--training.compile=true"}),
                    .variables = {},
                    .base = dropout_base});
    rows.push_back({.name = "dropout-five-ranks-every-round",
                    .flags = with(ranks(5), {dropout, every_round}),
                    .variables = {},
                    .base = dropout_base});
    rows.push_back({.name = "dropout-six-ranks-every-round-compiled",
                    .flags = with(ranks(6), {dropout, every_round, "--training.compile=true"}),
                    .variables = {},
                    .base = dropout_base});
    rows.push_back({.name = "dropout-fsdp-four-ranks",
                    .flags = with(divided(ranks(4), 4), {dropout}),
                    .variables = {},
                    .base = dropout_base});
    rows.push_back({.name = "dropout-seven-ranks-recomputed",
                    .flags = with(ranks(7), {dropout, "--activation_checkpoint.mode=full"}),
                    .variables = {},
                    .base = dropout_base});
    rows.push_back({"killed-then-gloo",
                    with(ranks(2), {"--training.compile=true"}),
                    {},
                    with(ranks(4), {"--runtime.transport=gloo"})});
  }
  const auto config = configuration_of(problem);
  for (Layout& row : rows) {
    for (const Words* flags : {&row.flags, &row.resumed_with}) {
      if (!flags->empty() && std::stoll((*flags)[1]) > config.numerics.virtual_shards)
        row.why_not = fmt::format("more ranks than the {} virtual shards", config.numerics.virtual_shards);
    }
  }
  const int64_t shards = config.numerics.virtual_shards == 4 ? 8 : 4, grain = config.numerics.token_grain == 8 ? 16 : 8;
  rows.push_back({.name = "control-virtual-shards",
                  .flags = with(ranks(1), {fmt::format("--numerics.virtual_shards={}", shards)}),
                  .variables = {},
                  .is_control = true});
  // Norms of heads sum over the heads of a shard's tokens last; all other sums over tokens are nodes of one tree.
  if (!has_norms_of_heads(config))
    rows.back().why_not = "no sum of a model without norms of heads depends on how many shards its tokens form";
  rows.push_back({.name = "control-token-grain",
                  .flags = with(ranks(1), {fmt::format("--numerics.token_grain={}", grain)}),
                  .variables = {},
                  .is_control = true});
  return chosen(std::move(rows), problem);
}

void kill_running_layout() {
  const pid_t group = running;
  if (group <= 0 || ::kill(-group, SIGKILL) != 0) return;
  // Its last writes are over when the waiting thread has taken its end.
  for (int i = 0; i < 1000 && ::kill(-group, 0) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

LayoutResult run_layout(const LayoutsProblem& problem, const Layout& layout, const fs::path& folder,
                        const LayoutResult* base) {
  LayoutResult result{.run = folder / layout.name};
  const fs::path output = folder / (layout.name + ".txt");
  const Words common = train_command(problem, layout, folder);
  const auto start = [&](const Words& flags) {
    Words command = common;
    command.insert(command.end(), flags.begin(), flags.end());
    return Child(command, layout.variables, output);
  };
  {
    Child first = start(layout.flags);
    if (!layout.resumed_with.empty()) kill_in_the_middle(first, layout, result.run, problem, output);
    else expect_done(first.wait(), layout, output);
  }
  if (!layout.resumed_with.empty()) expect_done(start(layout.resumed_with).wait(), layout, output);

  const std::vector<train::StepRecord> records = train::read_metrics(result.run / "metrics.jsonl");
  TUTTI_CHECK_ENV(static_cast<int64_t>(records.size()) == problem.steps, "layout {}: {} of {} steps are in its metrics",
                  layout.name, records.size(), problem.steps);
  result.loss_hex = train::hex_float(records.back().loss);
  result.grad_norm_hex = train::hex_float(records.back().grad_norm);
  std::vector<double> times;
  for (const train::StepRecord& record : records) times.push_back(record.step_ms);
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  result.step_ms = times[times.size() / 2];
  result.digest = train::digest_of(train::verify_checkpoint(result.run));
  result.product_flops = records.back().product_flops;
  result.peak_bytes = records.back().memory_peak_bytes;
  result.sent_bytes = records.back().sent_bytes;
  if (base != nullptr) result.diff = train::compare_runs(base->run, result.run);
  // A short run may have taken its last step before it was killed, in its first layout.
  for (const Words* flags : {&layout.resumed_with, &layout.flags}) {
    if (flags->empty()) continue;
    const train::Config config = configuration_of(problem, *flags);
    const int64_t ranks = std::stoll((*flags)[1]);
    const std::string& transport = config.runtime.transport;
    const train::StepPlan plan =
        train::StepPlanner(config).plan(ranks, transport == "auto" || transport == "shm" || transport == "threads");
    result.planned_peak_bytes = plan.of_ranks[0].peak();
    result.planned_sent_bytes = static_cast<int64_t>(plan.sent_bytes());
    result.excess = base == nullptr || layout.is_control ? "" : excess_of(result, *base, config, ranks);
    if (result.excess.empty()) break;
  }
  result.is_as_promised = base == nullptr || (result.diff.same_bits() != layout.is_control && result.excess.empty());
  return result;
}

}  // namespace tutti::bench
