// One package, many threads.
#include <gtest/gtest.h>

#include <thread>

#include "tests/package/support/packaged_cases.h"

namespace tutti {
namespace {

using package_test::Block;
using package_test::for_this_processor;
using package_test::values;

TEST(PackageThreads, CallsOfOnePackageWithOtherSizesDoNotMeet) {
  const testing::TemporaryFolder folder;
  const Block block;
  package(folder / "f", block, for_this_processor("f", {{.name = "tokens", .dims = {{0, 1}}, .least = 1, .most = 8}}),
          values(1, {2, 4, 16}));
  const auto opened = deploy::Package::open(folder / "f");
  std::vector<Tensor> inputs, expected;
  for (int64_t n = 1; n <= 8; ++n) {
    inputs.push_back(values(static_cast<uint64_t>(10 + n), {2, n, 16}));
    expected.push_back(block(inputs.back()));
  }
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 60; ++i) {
        const size_t n = (i * (t + 1) + t) % inputs.size();
        expect_same_bits(opened->run({{inputs[n]}})[0], expected[n], fmt::format("thread {}, {} tokens", t, n + 1));
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(PackageThreads, OpeningOnePackageOftenSharesItsCode) {
  const testing::TemporaryFolder folder;
  const Block block;
  package(folder / "f", block, for_this_processor("f"), values(1, {2, 4, 16}));
  const Tensor x = values(2, {2, 4, 16}), expected = block(x);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) expect_same_bits(deploy::Package::open(folder / "f")->run({{x}})[0], expected);
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace tutti
