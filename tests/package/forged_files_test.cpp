// Damaged, cut and forged files: every byte is checked before anything is used, and what passes the hashes is checked
// again before anything runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>

#include "tests/package/support/packaged_cases.h"
#include "tests/support/fuzz_rounds.h"
#include "tutti/deploy/package_error.h"
#include "tutti/graph/control.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"

namespace tutti {
namespace {

using deploy::Package;
using deploy::PackageError;
using deploy::Section;
using deploy::SectionKind;
using package_test::Block;
using package_test::for_this_processor;
using package_test::read_file;
using package_test::values;
using package_test::write_file;

Tensor softmax_of_sum(const Tensor& x) { return softmax(add(x, x[0]), -1); }

// A package with several sizes, in a folder of its own.
struct Forged {
  template <class Fn = Tensor (*)(const Tensor&)>
  explicit Forged(const Fn& fn = &softmax_of_sum, std::vector<PackagedState> state = {}) : path(folder / "f") {
    PackageOptions options = for_this_processor("f", {{.name = "tokens", .dims = {{0, 1}}, .least = 3, .most = 6}});
    options.state = std::move(state);
    package(path, fn, options, values(1, {2, 4, 16}));
    contents = read_file(path);
  }
  // How opening the file with these contents, and checking its plans, ends.
  std::string outcome(const std::string& bytes) const {
    write_file(path, bytes);
    return outcome();
  }
  std::string outcome() const {
    try {
      Package::open(path, Package::Purpose::look)->check_all_plans();
    } catch (const PackageError& e) {
      return e.what();
    }
    return "opened";
  }
  // The file with other bytes in a section, and hashes that fit.
  void rewrite(SectionKind kind, const std::string& bytes) const {
    write_file(path, contents);
    const auto file = deploy::SectionFile::open(path);
    std::vector<Section> sections(file->sections().begin(), file->sections().end());
    for (Section& s : sections) {
      if (s.kind == kind) s.bytes = bytes;
    }
    deploy::write_sections(path, sections);
  }
  std::string section(SectionKind kind) const {
    write_file(path, contents);
    return std::string(deploy::SectionFile::open(path)->get(kind).bytes);
  }
  // The outcome where `change` has changed the manifest, with hashes that fit.
  template <class Change>
  std::string outcome_with(Change change) const {
    deploy::Manifest manifest = deploy::Manifest::of_bytes(section(SectionKind::manifest));
    change(manifest);
    rewrite(SectionKind::manifest, manifest.to_bytes());
    return outcome();
  }
  testing::TemporaryFolder folder;
  std::string path, contents;
};

TEST(ForgedPackages, EveryByteOfTheFirstPageAndSomeOfEverySectionAreChecked) {
  const Forged f;
  EXPECT_EQ(f.outcome(f.contents), "opened");
  std::fstream file(f.path, std::ios::binary | std::ios::in | std::ios::out);
  for (size_t i = 0; i < f.contents.size(); i += i < deploy::kPage ? 1 : 127) {
    const auto put = [&](char value) {
      file.seekp(static_cast<std::streamoff>(i));
      file.put(value).flush();
    };
    put(static_cast<char>(f.contents[i] ^ (1 << i % 8)));
    ASSERT_NE(f.outcome(), "opened") << "byte " << i;
    put(f.contents[i]);
  }
  EXPECT_EQ(f.outcome(), "opened");
}

TEST(ForgedPackages, CutFilesAndOnesThatGoOn) {
  const Forged f;
  for (size_t n = 0; n < f.contents.size(); n += 251) ASSERT_NE(f.outcome(f.contents.substr(0, n)), "opened") << n;
  EXPECT_NE(f.outcome(f.contents + std::string(deploy::kPage, '\0')), "opened");
  EXPECT_NE(f.outcome(f.contents + "x"), "opened");
  EXPECT_HAS(f.outcome(""), "is no package");
}

TEST(ForgedPackages, ErrorsSayOfWhichKindTheyAre) {
  const Forged f;
  const auto kind_of = [&](const std::string& bytes) {
    write_file(f.path, bytes);
    try {
      Package::open(f.path);
    } catch (const PackageError& e) {
      return e.kind;
    }
    return PackageError::Kind::file;
  };
  std::string other = f.contents;
  other[8] = 99;
  EXPECT_EQ(kind_of(other), PackageError::Kind::version);
  EXPECT_EQ(kind_of("TUTTIPKG" + std::string(8192, '\1')), PackageError::Kind::version);
  EXPECT_EQ(kind_of(std::string(8192, '\1')), PackageError::Kind::damaged);
  try {
    Package::open(f.folder / "nowhere");
    ADD_FAILURE();
  } catch (const PackageError& e) {
    EXPECT_EQ(e.kind, PackageError::Kind::file) << e.what();
  }
}

TEST(ForgedPackages, OtherVersionsOfNumericsGeneratorsAndOpsAreRefused) {
  const Forged f{Block()};
  EXPECT_EQ(f.outcome_with([](deploy::Manifest&) {}), "opened");
  EXPECT_HAS(f.outcome_with([](deploy::Manifest& m) { ++m.numerics_version; }), "numerics.version");
  EXPECT_HAS(f.outcome_with([](deploy::Manifest& m) { ++m.generator; }), "code of the generator");
  EXPECT_HAS(f.outcome_with([](deploy::Manifest& m) { ++m.ops[0].schema; }), "other versions of these ops");
  const std::string missing = f.outcome_with([](deploy::Manifest& m) {
    m.ops.push_back({"fold_space", "", 1});
    m.ops.push_back({"fold_time", "", 1});
  });
  EXPECT_HAS(missing, "does not have: fold_space, fold_time");
  // Each dim may be as large, and all together have more bytes than a number counts.
  const std::string large = f.outcome_with([](deploy::Manifest& m) {
    for (deploy::PackageDim& d : m.inputs[0].dims) {
      if (d.symbol < 0) d.size = (int64_t{1} << 40) - 1;
    }
  });
  EXPECT_HAS(large, "argument 0 in the manifest of the package has more than 70368744177664 bytes");
  for (const int32_t place : {0, 1, -2, 1 << 30})
    EXPECT_HAS(f.outcome_with([&](deploy::Manifest& m) { m.sizes[0].apart_from = place; }), "that is apart from size");
  const std::string incomplete = f.outcome_with([](deploy::Manifest& m) { m.library_dtypes.push_back(DType::bf16); });
  EXPECT_HAS(incomplete, "lacks the kernel gemm_");
}

// Functions of an argument that they write, and of a tensor that is state.
struct Writing {
  Tensor operator()(const Tensor& x) const {
    mul_(x, 2.0);
    return add_(total, sum(x, {.dims = {0, 1}}));
  }
  Tensor total = values(3, {4, 16});
};

TEST(ForgedPackages, WhatIsWrittenIsDeclaredAndHasMemory) {
  const Writing fn;
  const Forged f(fn, {{"total", slice(fn.total, 0, 1, 3)}});
  EXPECT_EQ(f.outcome_with([](deploy::Manifest&) {}), "opened");
  EXPECT_NE(f.outcome_with([](deploy::Manifest& m) { m.inputs[0].is_written = false; }), "opened");
  EXPECT_NE(f.outcome_with([](deploy::Manifest& m) { m.state_memory[0].nbytes -= 4; }), "opened");
  EXPECT_NE(f.outcome_with([](deploy::Manifest& m) { m.state_memory[0].first = uint64_t{1} << 40; }), "opened");
  EXPECT_NE(f.outcome_with([](deploy::Manifest& m) { m.state_memory.clear(), m.state.clear(); }), "opened");
  for (const int64_t first : {int64_t{-4}, int64_t{2}, int64_t{256}, std::numeric_limits<int64_t>::max() - 3})
    EXPECT_NE(f.outcome_with([&](deploy::Manifest& m) { m.state[0].first = first; }), "opened") << first;
  for (const int64_t size : {int64_t{-1}, int64_t{4}, int64_t{1} << 61})
    EXPECT_NE(f.outcome_with([&](deploy::Manifest& m) { m.state[0].sizes[0] = size; }), "opened") << size;
  EXPECT_NE(f.outcome_with([](deploy::Manifest& m) { m.state[0].sizes = {0, 1 << 30, 1 << 30, 1 << 30}; }), "opened");
  for (const int32_t memory : {-1, 1})
    EXPECT_NE(f.outcome_with([&](deploy::Manifest& m) { m.state[0].memory = memory; }), "opened") << memory;
}

// A choice within a loop, and a loop over rows.
Tensor control_flow(const Tensor& x) {
  using Span = std::span<const Tensor>;
  using Many = std::vector<Tensor>;
  const auto body = [](Span c) {
    return Many{cond(
                    gt(c[1], 2), [](Span in) { return Many{mul(in[0], 2.0)}; },
                    [](Span in) { return Many{softmax(in[0], -1)}; }, {c[0]})[0],
                add(c[1], 1)};
  };
  const Many looped = while_loop([](Span c) { return lt(c[1], 5); }, body, {x, Tensor::scalar(int64_t{0})});
  const Tensor rows = reshape(looped[0], {looped[0].size(0) * looped[0].size(1), looped[0].size(2)});
  const Tensor many = cat({rows, rows, rows}, 0);
  return scan(
             [](Span c, Span e) {
               const Tensor next = add(c[0], e[0]);
               return ScanStep{{next}, {sum(next)}};
             },
             {rows[0]}, {many})
      .outputs[0];
}

void change_sections(const Forged& f, std::mt19937& random) {
  for (const SectionKind kind : {SectionKind::manifest, SectionKind::plans, SectionKind::kernels}) {
    const std::string good = f.section(kind);
    for (testing::FuzzRounds rounds(150); rounds.go_on();) {
      std::string bytes = good;
      for (uint32_t n = 1 + random() % 3; n > 0; --n) {
        const size_t at = random() % bytes.size();
        switch (random() % 5) {
          case 0:
            bytes[at] = static_cast<char>(random());
            break;
          case 1:
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
            break;
          case 2:
            bytes.resize(at);
            bytes += '\0';
            break;
          case 3: {  // a number that is barely allowed, or barely not
            const int64_t number = (int64_t{1} << (8 + random() % 55)) - random() % 3;
            std::memcpy(&bytes[at], &number, std::min(sizeof number, bytes.size() - at));
            break;
          }
          default:
            bytes.insert(at, 1 + random() % 9, static_cast<char>(random()));
        }
      }
      f.rewrite(kind, bytes);
      f.outcome();
    }
  }
}

// Bytes that the hashes cover are changed together with them. Whatever they say, reading them ends with an error or
// with plans that stay within their memory; nothing of them runs.
TEST(ForgedPackages, WhatPassesTheHashesIsReadWithCare) {
  const Writing writing;
  const Forged block{Block()}, writes(writing, {{"total", writing.total}}), flow(&control_flow);
  std::mt19937 random(1);
  for (const Forged* forged : {&block, &writes, &flow}) change_sections(*forged, random);
}

}  // namespace
}  // namespace tutti
