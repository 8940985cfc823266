#include "tests/cli/support/losses.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <random>
#include <vector>

#include "tests/cli/support/program.h"
#include "tests/cli/support/tiny_run.h"
#include "tutti/train/report/metrics.h"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kTrain =
    "train run.toml --quiet --run.name=run --training.steps=12 --checkpoint.every=3 --checkpoint.keep_latest=2 "
    "--validation.every=2 --validation.steps=-1 "
    "--validation.sample_tokens=40";
// For whatever must happen anyhow; only a hang lasts as long.
constexpr auto kPatience = std::chrono::seconds(120);

struct Failure {
  std::string text;
};

class Loser {
 public:
  Loser(LossLayout layout, uint64_t seed) : layout_(layout), random_(seed) {}

  void run(int count) {
    for (int done = 0; done < count;) done += lose_one();
  }

  std::string counts() const {
    std::string text;
    for (const auto& [what, number] : counts_) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", number, what);
    std::vector<double> lost = seconds_;
    std::sort(lost.begin(), lost.end());
    if (!lost.empty())
      text += fmt::format("; seconds lost: least {:.3f}, median {:.3f}, most {:.3f}", lost.front(),
                          lost[lost.size() / 2], lost.back());
    return text;
  }

 private:
  int draw(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  struct Undisturbed {
    std::string outcome;
    Clock::duration time;
  };
  std::string flags(bool narrow, bool compiled, bool experts) const {
    return fmt::format(
        "{} -n 4{}{}{}{}", kTrain, experts ? " --model.flavor=tiny_moe --data.tokenizer=byte" : "",
        narrow ? " --training.mixed_precision_param=bfloat16" : "", compiled ? " --training.compile=true" : "",
        layout_ == LossLayout::shards
            ? " --parallelism.data_parallel_replicate_degree=1 --parallelism.data_parallel_shard_degree=-1"
            : "");
  }

  // The run without survival, one rank lost or not, is what it always was.
  const Undisturbed& undisturbed(bool narrow, bool compiled, bool experts) {
    auto& known = undisturbed_[{narrow, compiled, experts}];
    if (!known.outcome.empty()) return known;
    const Workplace work;
    write_tiny_run(work);
    const auto begin = Clock::now();
    const Output whole = work.tutti(flags(narrow, compiled, experts));
    if (whole.status != 0) throw Failure{"the undisturbed run failed: " + whole.err};
    known = {outcome_of(work), Clock::now() - begin};
    return known;
  }

  // Returns whether a rank was lost.
  bool lose_one() {
    const bool narrow = draw(4) == 0, compiled = draw(4) == 0, in_background = draw(3) == 0, experts = draw(4) == 0;
    const Undisturbed& expected = undisturbed(narrow, compiled, experts);
    const int replacements = draw(3);
    const int blows = 1 + draw(3);  // moments
    const int at_once = draw(4) == 0 ? 2 : 1;
    history_ = fmt::format("{}{}{}{} replacements, {} moments, {} at once: ", narrow ? "bf16, " : "",
                           in_background ? "saved in the background, " : "", experts ? "experts, " : "", replacements,
                           blows, at_once);
    const Workplace work;
    write_tiny_run(work);
    const int pid = work.start(fmt::format("{} --training.survive_rank_loss=true --max-restarts={}{}",
                                           flags(narrow, compiled, experts), replacements,
                                           in_background ? " --checkpoint.async=true" : ""));
    int status = 0, killed = 0;
    bool over = false;
    const auto look = [&] { return over = over || waitpid(pid, &status, WNOHANG) == pid; };
    const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(expected.time).count();
    for (int blow = 0; blow < blows && !over; ++blow) {
      const auto moment =
          Clock::now() +
          std::chrono::microseconds(static_cast<int64_t>(random_() % static_cast<uint64_t>(whole + whole / 4)));
      while (!look() && Clock::now() < moment) usleep(100);
      for (int i = 0; i < at_once && !over; ++i) {
        const std::vector<int> ranks = ranks_of(pid);
        if (ranks.size() < 2 || killed == 3) break;  // one is left, also when replacements have not come yet
        const size_t which = static_cast<size_t>(draw(static_cast<int>(ranks.size())));
        kill(ranks[which], SIGKILL);
        history_ += fmt::format("{} of {}; ", which, ranks.size());
        ++killed;
      }
    }
    const auto deadline = Clock::now() + kPatience;
    while (!look()) {
      if (Clock::now() > deadline) {
        kill(pid, SIGKILL);
        throw Failure{fmt::format("after {}the run did not end: {}", history_, work.read("err.txt"))};
      }
      usleep(500);
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code != 0)
      throw Failure{fmt::format("after {}the run ended with status {}: {}", history_, code, work.read("err.txt"))};
    if (outcome_of(work) != expected.outcome)
      throw Failure{fmt::format("after {}the run differs: {}", history_, work.read("err.txt"))};
    if (killed > 0) ++counts_[fmt::format("{} killed{}", killed, replacements > 0 ? " with replacements" : "")];
    for (const train::StepRecord& record : train::read_metrics(work.folder() / "runs/run/metrics.jsonl")) {
      for (const train::LostRank& lost : record.lost_ranks) seconds_.push_back(lost.seconds_lost);
    }
    return killed > 0;
  }

  const LossLayout layout_;
  std::mt19937_64 random_;
  std::map<std::array<bool, 3>, Undisturbed> undisturbed_;
  std::string history_;
  std::map<std::string, int> counts_;
  std::vector<double> seconds_;
};

}  // namespace

LossReport lose_ranks(LossLayout layout, uint64_t seed, int count) {
  Loser loser(layout, seed);
  LossReport report;
  try {
    loser.run(count);
  } catch (const Failure& failure) {
    report.difference = fmt::format("seed {}: {}", seed, failure.text);
  }
  report.counts = loser.counts();
  return report;
}

}  // namespace tutti::test
