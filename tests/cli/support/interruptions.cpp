#include "tests/cli/support/interruptions.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <random>

#include "tests/cli/support/tiny_run.h"
#include "tutti/core/error.h"
#include "tutti/train/checkpoint/checkpoint.h"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kTrain =
    "train run.toml --quiet --run.name=run --training.steps=12 --checkpoint.every=2 --checkpoint.keep_latest=2 "
    "--validation.every=2 "
    "--validation.steps=-1 --validation.sample_tokens=80 -n {}";
constexpr int64_t kSteps = 12;
constexpr int kMostPerRun = 8;
// For whatever must happen anyhow; only a hang lasts as long.
constexpr auto kPatience = std::chrono::seconds(180);

enum class Moment { start, step, validation, save, sample };
enum class Blow { kill_rank, kill_launcher, term, interrupt, interrupt_twice };
constexpr const char* kMoments[] = {"start", "step", "validation", "save", "sample"};
constexpr const char* kBlows[] = {"SIGKILL of a rank", "SIGKILL of the launcher", "SIGTERM", "SIGINT", "two SIGINTs"};

struct Failure {
  std::string text;
};

template <class Condition>
void wait_until(const Condition& condition, const char* what) {
  const auto deadline = Clock::now() + kPatience;
  while (!condition()) {
    if (Clock::now() > deadline) throw Failure{fmt::format("waited {} s for {}", kPatience.count(), what)};
    usleep(200);
  }
}

class Interrupter {
 public:
  explicit Interrupter(uint64_t seed) : random_(seed) {}

  void run(int count) {
    const Workplace undisturbed;
    write_tiny_run(undisturbed);
    const Output whole = undisturbed.tutti(fmt::format(kTrain, 1));
    if (whole.status != 0) throw Failure{"the undisturbed run failed: " + whole.err};
    expected_ = outcome_of(undisturbed);
    while (done_ < count) interrupt_one_run(count);
  }

  std::string counts() const {
    std::string text;
    for (const auto& [what, number] : counts_) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", number, what);
    return text;
  }

 private:
  int draw(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  void interrupt_one_run(int count) {
    const Workplace work;
    write_tiny_run(work);
    history_.clear();
    for (int i = 0; i < kMostPerRun && done_ < count; ++i) {
      if (start_and_interrupt(work)) break;
      check_checkpoints(work);
    }
    const int ranks = 1 << draw(3);
    const Output last = work.tutti(fmt::format(kTrain, ranks));
    if (last.status != 0) fail(fmt::format("a start on {} ranks failed: {}", ranks, last.err));
    if (last.err.find("incomplete") != std::string::npos) fail("a kill left an incomplete checkpoint: " + last.err);
    if (outcome_of(work) != expected_)
      fail("the finished run differs:\n" + first_difference(outcome_of(work), expected_));
  }

  // Returns whether the run came to its end before the blow.
  bool start_and_interrupt(const Workplace& work) {
    const int ranks = 1 << draw(3);
    const auto moment = static_cast<Moment>(draw(std::size(kMoments)));
    const auto blow = static_cast<Blow>(draw(std::size(kBlows)));
    history_ += fmt::format("{} on {} ranks at {}; ", kBlows[static_cast<int>(blow)], ranks,
                            kMoments[static_cast<int>(moment)]);
    const int pid = work.start(fmt::format(kTrain, ranks));
    int status = 0;
    const auto ended = [&] { return waitpid(pid, &status, WNOHANG) == pid; };
    bool over = false;
    const auto come = [&](const auto& condition, const char* what) {
      if (!over) wait_until([&] { return (over = ended()) || condition(); }, what);
    };
    come(
        [&, begin = Clock::now(), delay = std::chrono::microseconds(draw(400'000))] {
          return moment != Moment::start || Clock::now() - begin > delay;
        },
        "a start");
    const size_t lines_before = lines_of(work);
    const size_t line = lines_before + static_cast<size_t>(draw(6));
    const fs::path checkpoints = work.folder() / "runs/run/checkpoint";
    if (moment == Moment::step)
      come([&] { return lines_of(work) >= line || is_there(checkpoints / fmt::format("step-{}", kSteps)); }, "a step");
    if (moment == Moment::validation)
      come(
          [&] {
            return (lines_of(work) % 2 == 1 && lines_of(work) >= line) ||
                   is_there(checkpoints / fmt::format("step-{}", kSteps));
          },
          "a validation");
    if (moment == Moment::save) come([&] { return is_saving(checkpoints); }, "a save");
    if (moment == Moment::sample)
      come([&] { return is_there(checkpoints / fmt::format("step-{}", kSteps)); }, "the last save");
    come(
        [&, begin = Clock::now(), delay = std::chrono::microseconds(draw(moment == Moment::save ? 2'000 : 30'000))] {
          return Clock::now() - begin > delay;
        },
        "the moment");
    if (!over) {
      strike(pid, ranks, blow);
      ++done_;
      ++counts_[fmt::format("{} at {}", kBlows[static_cast<int>(blow)], kMoments[static_cast<int>(moment)])];
      wait_until([&] { return over = ended(); }, "the end of an interrupted start");
    }
    // Ranks outlive a launcher that was killed by the step that they finish.
    wait_until([&] { return is_free(work.folder() / "runs/run/.lock"); }, "the lock of the run");
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const bool stopped = blow != Blow::kill_rank && blow != Blow::kill_launcher;
    if (stopped && code != 0 && code != 130 && code != 143)
      fail(fmt::format("a stopped start ended with status {}: {}", code, work.read("err.txt")));
    if (!stopped && code != 0 && code != 137)
      fail(fmt::format("a killed start ended with status {}: {}", code, work.read("err.txt")));
    return code == 0;
  }

  void strike(int pid, int ranks, Blow blow) {
    if (blow == Blow::kill_rank && ranks > 1) {
      const std::vector<int> children = ranks_of(pid);
      if (!children.empty()) pid = children[static_cast<size_t>(draw(static_cast<int>(children.size())))];
    }
    const bool kills = blow == Blow::kill_rank || blow == Blow::kill_launcher;
    kill(pid, kills ? SIGKILL : blow == Blow::term ? SIGTERM : SIGINT);
    if (blow == Blow::interrupt_twice) kill(pid, SIGINT);
  }

  void check_checkpoints(const Workplace& work) {
    const fs::path folder = work.folder() / "runs/run/checkpoint";
    for (const train::IncompleteCheckpoint& c : train::incomplete_checkpoints(folder))
      fail(c.path.string() + " is incomplete");
    for (const fs::path& path : train::list_checkpoints(folder)) {
      try {
        train::verify_checkpoint(path);
      } catch (const Error& error) {
        fail(error.what());
      }
    }
  }

  [[noreturn]] void fail(const std::string& text) const { throw Failure{fmt::format("after {}{}", history_, text)}; }

  static size_t lines_of(const Workplace& work) {
    const std::string text = work.read("runs/run/metrics.jsonl");
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  static bool is_there(const fs::path& path) {
    std::error_code none;
    return fs::exists(path, none);
  }
  static bool is_saving(const fs::path& checkpoints) {
    std::error_code none;
    for (fs::directory_iterator entry(checkpoints, none), end; !none && entry != end; entry.increment(none)) {
      if (entry->path().filename().string().starts_with(".tmp-")) return true;
    }
    return false;
  }
  static bool is_free(const fs::path& lock) {
    const int fd = open(lock.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return true;
    const bool free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return free;
  }
  static std::string first_difference(const std::string& found, const std::string& expected) {
    size_t place = static_cast<size_t>(
        std::mismatch(found.begin(), found.end(), expected.begin(), expected.end()).first - found.begin());
    place = place < 100 ? 0 : place - 100;
    return fmt::format("found    ...{}\nexpected ...{}", found.substr(std::min(place, found.size()), 300),
                       expected.substr(std::min(place, expected.size()), 300));
  }

  std::mt19937_64 random_;
  std::string expected_, history_;
  std::map<std::string, int> counts_;
  int done_ = 0;
};

}  // namespace

InterruptionReport interrupt_runs(uint64_t seed, int count) {
  Interrupter interrupter(seed);
  InterruptionReport report;
  try {
    interrupter.run(count);
  } catch (const Failure& failure) {
    report.difference = fmt::format("seed {}: {}", seed, failure.text);
  }
  report.counts = interrupter.counts();
  return report;
}

}  // namespace tutti::test
