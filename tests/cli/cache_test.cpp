// A cache that fails costs a run time and one line, never its end or its numbers.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTwoSteps = "train " TUTTI_SOURCE_DIR
                                  "/configs/quickstart.toml --quiet --data corpus.jsonl --data.tokenizer=bpe:300 "
                                  "--training.steps=2 --training.global_batch_tokens=512 "
                                  "--data.sequence_length=64 --data.validation_fraction=0.05 "
                                  "--lr_scheduler.warmup_steps=1 --validation.every=0 --checkpoint.every=0 --run.name=";

int lines_about_a_cache(const std::string& text) {
  int lines = 0;
  for (size_t at = text.find("cache"); at != std::string::npos; at = text.find("cache", text.find('\n', at))) ++lines;
  return lines;
}

struct FailingCache {
  const char* name;
  const char* shell;  // makes it and names it
};

// Every run makes its kernels anew, so that these are few; tests/fuzz/cache_fuzz_test.cpp has the others.
constexpr FailingCache kFailing[] = {{"file", "touch file; TUTTI_CACHE_DIR=file"},
                                     {"read_only", "TUTTI_CACHE_DIR=/proc/self"},
                                     {"writable_for_the_group", "mkdir -m 0770 open; TUTTI_CACHE_DIR=open"},
                                     {"no_home", "unset TUTTI_CACHE_DIR XDG_CACHE_HOME HOME;"},
                                     {"home_that_is_none", "unset TUTTI_CACHE_DIR XDG_CACHE_HOME; HOME=/proc/nowhere"}};

TEST(CacheFolders, ThatFailCostOneWarningAndNeverTheRun) {
  Workplace work;
  work.write("corpus.jsonl", synthetic_corpus(20, 100));
  ASSERT_EQ(work.tutti(std::string(kTwoSteps) + "usual").status, 0) << work.read("err.txt");
  for (const FailingCache& cache : kFailing) {
    const Output output = work.tutti(std::string(kTwoSteps) + cache.name, cache.shell);
    EXPECT_EQ(output.status, 0) << cache.name << ": " << output.err;
    EXPECT_EQ(lines_about_a_cache(output.err), 1) << cache.name << ": " << output.err;
    EXPECT_EQ(work.metric("usual", "loss_hex"), work.metric(cache.name, "loss_hex")) << cache.name;
    EXPECT_EQ(work.digest("usual"), work.digest(cache.name)) << cache.name;
  }
}

// What is read from the cache is machine code. A process that waits for a pipe does not even end on SIGTERM.
TEST(CacheFiles, PipesInPlaceOfKernelsAreNotWaitedFor) {
  Workplace work;
  work.write("corpus.jsonl", synthetic_corpus(20, 100));
  ASSERT_EQ(work.tutti(std::string(kTwoSteps) + "usual", "TUTTI_CACHE_DIR=cache").status, 0) << work.read("err.txt");
  int replaced = 0;
  for (const auto& entry : fs::directory_iterator(work.folder() / "cache")) {
    const fs::path path = entry.path();
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    ++replaced;
  }
  EXPECT_GT(replaced, 5);
  const int pid = work.start(std::string(kTwoSteps) + "pipes", "TUTTI_CACHE_DIR=cache");
  int ended = 0, status = 0;
  for (int i = 0; i < 48'000 && ended == 0; ++i) {
    ended = waitpid(pid, &status, WNOHANG);
    if (ended == 0) usleep(10'000);
  }
  if (ended == 0) kill(pid, SIGKILL);
  ASSERT_EQ(ended, pid) << "it waits for a pipe";
  EXPECT_EQ(status, 0) << work.read("err.txt");
  EXPECT_EQ(work.metric("usual", "loss_hex"), work.metric("pipes", "loss_hex"));
}

TEST(CacheFiles, TheTrainerMakesTheFolderForItsUserAlone) {
  Workplace work;
  work.write("corpus.jsonl", synthetic_corpus(20, 100));
  ASSERT_EQ(work.tutti(std::string(kTwoSteps) + "open", "umask 0; TUTTI_CACHE_DIR=cache").status, 0)
      << work.read("err.txt");
  struct stat info;
  ASSERT_EQ(stat((work.folder() / "cache").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  for (const auto& entry : fs::directory_iterator(work.folder() / "cache")) {
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u) << entry.path();
  }
}

}  // namespace
}  // namespace tutti::test
