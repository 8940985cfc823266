#include "tutti/codegen/object_loader.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/codegen/support/harness.h"
#include "tutti/codegen/compiler_plugin.h"
#include "tutti/codegen/llvm/plugin.h"
#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

using testing::Recipe;

// exp needs constants, so the object has a second section and relocations.
const std::string& sample_object() {
  static const std::string object = [] {
    Recipe recipe;
    recipe.output(apply_scalar(ScalarOp::exp, recipe.input(DType::f32)), DType::f32);
    return compile_object(recipe.finish("exp"), CpuTarget::avx2);
  }();
  return object;
}

template <class Fn>
void for_sections(std::string& object, Fn fn) {
  Elf64_Ehdr header;
  std::memcpy(&header, object.data(), sizeof(header));
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, object.data() + header.e_shoff + static_cast<size_t>(i) * sizeof(section), sizeof(section));
    fn(section);
  }
}

TEST(ObjectLoader, GivesABlobThatRunsWhereverItIsMapped) {
  const CodeBlob blob = link_object(sample_object(), kKernelEntryName);
  for (int copy = 0; copy < 2; ++copy) {
    const KernelEntry entry = map_code(blob.bytes, blob.entry);
    float x[3] = {0, 1, 2}, y[3] = {};
    const OperandCall operands[] = {{x}, {y}};
    uint32_t error = 0;
    const KernelCall call{.operands = operands, .params = nullptr, .n_inner = 3, .error = &error};
    entry(&call);
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_NEAR(y[2], 7.389056, 1e-5);
  }
}

TEST(ObjectLoader, RefusesAnUnknownEntry) { EXPECT_THROW(link_object(sample_object(), "another"), InternalError); }

TEST(ObjectLoader, RefusesAbsoluteAddresses) {
  std::string object = sample_object();
  int changed = 0;
  for_sections(object, [&](const Elf64_Shdr& section) {
    if (section.sh_type != SHT_RELA || section.sh_size == 0) return;
    Elf64_Rela rela;
    std::memcpy(&rela, object.data() + section.sh_offset, sizeof(rela));
    rela.r_info = ELF64_R_INFO(ELF64_R_SYM(rela.r_info), R_X86_64_64);
    std::memcpy(object.data() + section.sh_offset, &rela, sizeof(rela));
    ++changed;
  });
  ASSERT_GT(changed, 0);
  EXPECT_THROW(link_object(object, kKernelEntryName), InternalError);
}

TEST(ObjectLoader, RefusesUndefinedSymbols) {
  std::string object = sample_object();
  for_sections(object, [&](const Elf64_Shdr& section) {
    if (section.sh_type != SHT_SYMTAB) return;
    for (size_t at = section.sh_offset; at < section.sh_offset + section.sh_size; at += sizeof(Elf64_Sym))
      std::memset(object.data() + at + offsetof(Elf64_Sym, st_shndx), 0, sizeof(Elf64_Sym::st_shndx));
  });
  EXPECT_THROW(link_object(object, kKernelEntryName), InternalError);
}

TEST(ObjectLoader, SurvivesEveryTruncation) {
  const std::string& object = sample_object();
  for (size_t length = 0; length < object.size(); length += 7)
    EXPECT_THROW(link_object(std::string_view(object).substr(0, length), kKernelEntryName), InternalError) << length;
}

TEST(ObjectLoader, SurvivesDamagedBytes) {
  for (uint64_t round = 0; round < 3000; ++round) {
    std::string object = sample_object();
    for (uint64_t k = 0; k < 3; ++k) {
      const uint64_t r = testing::mix(round * 3 + k);
      object[r % object.size()] = static_cast<char>(r >> 40);
    }
    try {
      const CodeBlob blob = link_object(object, kKernelEntryName);
      EXPECT_LT(blob.entry, blob.bytes.size());
    } catch (const InternalError&) {
    }
  }
}

}  // namespace
}  // namespace tutti::codegen
