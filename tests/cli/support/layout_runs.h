// Runs of one tiny model in several layouts, which must be equal.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/cli/support/program.h"

namespace tutti::test {

struct LayoutRuns : testing::Test {
  // Runs of `steps` steps with `flags`, validated in the middle and at the end.
  LayoutRuns(int steps, std::string flags) : last(std::to_string(steps)), flags(std::move(flags)) {
    work.write("corpus.jsonl", synthetic_corpus(20, 200));
    this->flags += " --validation.every=" + std::to_string(steps / 2);
  }
  // Trains the run `name` of the quickstart with the flags `more`, behind `shell` (program.h).
  Output train(const std::string& name, const std::string& more, const std::string& shell = "") const;
  // Starts it without waiting; the process id.
  int start(const std::string& name, const std::string& more) const;
  // Losses, gradient norms, validation, sample, and the bytes of the last checkpoint.
  void expect_equal_runs(const std::string& a, const std::string& b) {
    for (const char* key : {"loss_hex", "grad_norm_hex"})
      EXPECT_EQ(work.metric(a, key), work.metric(b, key)) << b << " " << key;
    const auto validated = [&](const std::string& run) {
      const std::string lines = work.read("runs/" + run + "/metrics.jsonl"), key = "\"val_bits_per_byte\":";
      const size_t at = lines.rfind(key);
      return at == std::string::npos ? std::string() : lines.substr(at, lines.find_first_of(",}", at) - at);
    };
    EXPECT_NE(validated(a), "");
    EXPECT_EQ(validated(a), validated(b)) << b;
    EXPECT_EQ(work.digest(a), work.digest(b)) << b;
    EXPECT_EQ(work.read("runs/" + a + "/sample.txt"), work.read("runs/" + b + "/sample.txt")) << b;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string path = "/checkpoint/step-" + last + "/" + file;
      EXPECT_TRUE(work.read("runs/" + a + path) == work.read("runs/" + b + path)) << b << " " << file;
    }
  }
  // The command that trains the run `name`, without its program.
  std::string command(const std::string& name, const std::string& more) const;

  Workplace work;
  const std::string last;
  std::string flags;
};

}  // namespace tutti::test
