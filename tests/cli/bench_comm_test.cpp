// `tutti bench comm`: what it prints, and what its exit status says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/support/program.h"
#include "tutti/comm/transports.h"

namespace tutti::test {
namespace {

std::vector<nlohmann::json> lines_of(const Output& output) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

bool has_transport(const std::string& name) {
  for (const comm::TransportInfo& info : comm::known_transports()) {
    if (info.name == name) return info.available;
  }
  return false;
}

TEST(BenchComm, PrintsOneObjectPerCase) {
  Workplace work;
  const Output output = work.tutti("bench comm -n 2 --op all_gather,barrier --bytes 8,1000 --buffers symmetric --json");
  ASSERT_EQ(output.status, 0) << output.err;
  const auto lines = lines_of(output);
  ASSERT_EQ(lines.size(), 3u) << output.out;
  for (const auto& line : lines) {
    EXPECT_EQ(line.size(), 12u);
    for (const char* key : {"op", "bytes", "asked_bytes", "ranks", "transport", "buffers", "min_us", "median_us",
                            "p99_us", "algbw_gbs", "busbw_gbs", "wrong"}) {
      EXPECT_TRUE(line.contains(key)) << key << " in " << line;
    }
    EXPECT_EQ(line["buffers"], "symmetric");
    EXPECT_EQ(line["wrong"], 0);
  }
}

TEST(BenchComm, CountsTheBytesThatMove) {
  Workplace work;
  const Output output = work.tutti("bench comm -n 3 --op all_gather,all_reduce,barrier --bytes 0,8 --json",
                                   "TUTTI_TRANSPORT=cpu:threads,cuda:nccl");
  ASSERT_EQ(output.status, 0) << output.err;
  const int64_t expected[][2] = {{0, 12}, {8, 12}, {0, 4}, {8, 8}, {0, 0}};  // asked, moved
  const auto lines = lines_of(output);
  ASSERT_EQ(lines.size(), 5u) << output.out;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(lines[i]["asked_bytes"], expected[i][0]) << lines[i];
    EXPECT_EQ(lines[i]["bytes"], expected[i][1]) << lines[i];
    EXPECT_EQ(lines[i]["transport"], "threads") << lines[i];
  }
}

TEST(BenchComm, AFlagGoesBeforeTheEnvironment) {
  Workplace work;
  const Output output = work.tutti("bench comm --op barrier --json --transport threads", "TUTTI_TRANSPORT=gloo");
  ASSERT_EQ(output.status, 0) << output.err;
  EXPECT_EQ(lines_of(output)[0]["transport"], "threads") << output.out;
  EXPECT_NE(work.tutti("bench comm --op barrier", "TUTTI_TRANSPORT=treads").err.find("did you mean 'threads'"),
            std::string::npos);
}

TEST(BenchComm, VerifiesTransportsAgainstEachOtherWithHierOverTwoHosts) {
  if (!has_transport("hier") || !has_transport("gloo")) return;
  Workplace work;
  const Output output = work.tutti("bench comm --verify -n 3 --transport threads,shm,hier --json");
  ASSERT_EQ(output.status, 0) << output.err;
  const auto lines = lines_of(output);
  ASSERT_EQ(lines.size(), 9u) << output.out;
  for (const auto& line : lines) {
    EXPECT_EQ(line["differing"], 0);
    EXPECT_GT(line["digests"], 1000);
  }
}

TEST(BenchComm, OverlapOverADelayedTransportTakesAtLeastTheDelays) {
  Workplace work;
  for (const char* transport : {"threads", "shm"}) {
    const Output output = work.tutti(fmt::format(
        "bench comm -n 2 --overlap --step buckets --repeats 1 --delay-us 1000 --delay-gbps 2 --transport {} --json",
        transport));
    ASSERT_EQ(output.status, 0) << output.err;
    const auto lines = lines_of(output);
    ASSERT_EQ(lines.size(), 2u) << output.out;
    for (const auto& line : lines) {
      EXPECT_EQ(line.size(), 8u);
      EXPECT_EQ(line["transport"], "delayed");
      // 16 calls of at least two rounds, in each of which a rank receives half a MiB.
      EXPECT_GE(line["apart_us"].get<double>(), 16 * 2 * (1000 + 262)) << line;
      EXPECT_GE(line["overlapped_us"].get<double>(), 16 * 2 * (1000 + 262)) << line;
      const double apart = line["apart_us"], overlapped = line["overlapped_us"], compute = line["compute_us"],
                   hidden = line["hidden"];
      // A busy machine may compute for longer alone than with the calls behind it: then there is nothing to hide.
      const double hideable = std::max(apart - compute, 0.0), expected = hideable > 0 ? apart - overlapped : 0;
      EXPECT_NEAR(hidden * hideable, expected, 1e-3 * apart) << line;
    }
    EXPECT_EQ(lines[0]["progress_thread"], false);
    EXPECT_EQ(lines[1]["progress_thread"], true);
  }
  EXPECT_EQ(work.tutti("bench comm --delay-us 5").status, 2);
}

TEST(BenchComm, WhatFailsUnderMpirunIsAFailure) {
  if (!has_transport("mpi")) return;
  Workplace work;
  EXPECT_NE(work.tutti("bench comm -n 2 --op all_reduce --bytes 8 --buffers symmetric --transport mpi",
                       "TUTTI_SYMM_BACKEND=nobody")
                .status,
            0);
  const Output output = work.tutti("bench comm -n 2 --op barrier --transport mpi", "PATH=/nowhere");
  EXPECT_EQ(output.status, 1);
  EXPECT_NE(output.err.find("mpirun cannot be started; is it in PATH?"), std::string::npos) << output.err;
}

// With K buffers all buckets but the last K are waited for so that another one may start, whatever the link.
TEST(BenchComm, InputBuffersShowStepsAndWaitsOverASlowLink) {
  if (!has_transport("shm")) return;
  Workplace work;
  const Output output =
      work.tutti("bench comm -n 2 --overlap --input-buffers 1,2,4 --repeats 1 --delay-us 2000 --json");
  ASSERT_EQ(output.status, 0) << output.err;
  const auto rows = lines_of(output);
  ASSERT_EQ(rows.size(), 3U) << output.out;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto k = size_t{1} << i;
    EXPECT_EQ(rows[i]["buffers"], k);
    EXPECT_GE(rows[i]["buckets"], 4);
    EXPECT_EQ(rows[i]["waits"].get<size_t>(), rows[i]["buckets"].get<size_t>() - k) << rows[i];
    EXPECT_GE(rows[i]["step_us"].get<double>(),
              rows[i]["waited_us"].get<double>() + rows[i]["waited_at_end_us"].get<double>());
  }
  EXPECT_NE(work.tutti("bench comm -n 2 --overlap --input-buffers 0").status, 0);
  EXPECT_EQ(work.tutti("bench comm --input-buffers 2").status, 2);
}

}  // namespace
}  // namespace tutti::test
