#include "tutti/deploy/section_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"
#include "tutti/deploy/package_error.h"

namespace tutti::deploy {
namespace {

TEST(SectionFile, SectionsComeBackAtPages) {
  const testing::TemporaryFolder folder;
  const std::string large(3 * kPage + 1, 'x');
  const Section sections[] = {{.kind = SectionKind::manifest, .bytes = "a"},
                              {.kind = SectionKind::code, .level = codegen::CpuTarget::avx512, .bytes = large},
                              {.kind = SectionKind::code, .level = codegen::CpuTarget::avx2, .bytes = "c"},
                              {.kind = SectionKind::constants, .bytes = ""}};
  write_sections(folder / "f", sections);
  const auto file = SectionFile::open(folder / "f");
  ASSERT_EQ(file->sections().size(), 4u);
  EXPECT_EQ(file->nbytes(), 7 * kPage);
  EXPECT_EQ(file->get(SectionKind::manifest).bytes, "a");
  EXPECT_EQ(file->find(SectionKind::code, codegen::CpuTarget::avx512)->bytes, large);
  EXPECT_EQ(file->find(SectionKind::code)->bytes, "c");
  EXPECT_EQ(file->get(SectionKind::constants).bytes, "");
  EXPECT_EQ(file->find(SectionKind::plans), nullptr);
  EXPECT_THROW(file->get(SectionKind::plans), PackageError);
  for (const Section& s : file->sections()) EXPECT_EQ(reinterpret_cast<uintptr_t>(s.bytes.data()) % kPage, 0u);
}

TEST(SectionFile, EveryByteIsChecked) {
  const testing::TemporaryFolder folder;
  const Section sections[] = {{.kind = SectionKind::manifest, .bytes = "abc"},
                              {.kind = SectionKind::plans, .bytes = "d"}};
  write_sections(folder / "f", sections);
  const auto opens = [&] {
    try {
      SectionFile::open(folder / "f");
      return true;
    } catch (const PackageError&) {
      return false;
    }
  };
  EXPECT_TRUE(opens());
  std::fstream file(folder / "f", std::ios::binary | std::ios::in | std::ios::out);
  for (size_t i = 0; i < 3 * kPage; ++i) {
    file.seekg(static_cast<std::streamoff>(i));
    const int byte = file.get();
    const auto put = [&](int value) {
      file.seekp(static_cast<std::streamoff>(i));
      file.put(static_cast<char>(value)).flush();
    };
    put(byte ^ (1 << i % 8));
    ASSERT_FALSE(opens()) << "byte " << i;
    put(byte);
  }
  EXPECT_TRUE(opens());
}

TEST(SectionFile, CutFilesAreRefused) {
  const testing::TemporaryFolder folder;
  const Section sections[] = {{.kind = SectionKind::manifest, .bytes = "abc"}};
  for (size_t n = 0; n < 2 * kPage; n += 61) {
    write_sections(folder / "f", sections);
    std::filesystem::resize_file(folder / "f", n);
    ASSERT_THROW(SectionFile::open(folder / "f"), PackageError) << n;
  }
}

TEST(SectionFile, WhatIsNoFileIsRefused) {
  const testing::TemporaryFolder folder;
  EXPECT_THROW(SectionFile::open(folder / "missing"), PackageError);
  EXPECT_THROW(SectionFile::open(folder.path()), PackageError);
}

}  // namespace
}  // namespace tutti::deploy
