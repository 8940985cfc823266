// The file of a package: a page that lists sections, then the sections, each from the start of a page.
//
//   bytes 0..7    "TUTTIPKG"
//   8..11         version of the format
//   12..15        number of sections
//   16..23        bytes of the file
//   24..55        BLAKE2b-256 of this page with zeros here
//   from 64       per section: kind, level (4 bytes each), first byte, bytes (8 each), BLAKE2b-256 (32)
//
// What is between sections is zero, so every byte of the file is checked. The hashes find damage; they do not say who
// made the file.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/codegen/cpu_target.h"

namespace tutti::deploy {

inline constexpr uint32_t kFormatVersion = 4;
inline constexpr size_t kPage = 4096;

enum class SectionKind : uint32_t { manifest, plans, kernels, code, constants, provenance };
const char* name_of(SectionKind kind);

struct Section {
  SectionKind kind;
  codegen::CpuTarget level = codegen::CpuTarget::avx2;  // of code
  std::string_view bytes;
  std::string hash = {};  // of the bytes; filled in when the file is written
};

// Replaces the file `path` atomically. EnvironmentError when the system refuses.
void write_sections(const std::string& path, std::span<const Section> sections);

// A mapped file. Immutable.
class SectionFile {
 public:
  // Maps the file read-only and checks every byte of it. PackageError.
  static std::shared_ptr<const SectionFile> open(const std::string& path);
  ~SectionFile();
  SectionFile(const SectionFile&) = delete;
  SectionFile& operator=(const SectionFile&) = delete;

  std::span<const Section> sections() const { return sections_; }
  // Null where the file has none.
  const Section* find(SectionKind kind, codegen::CpuTarget level = codegen::CpuTarget::avx2) const;
  // PackageError where the file has none.
  const Section& get(SectionKind kind) const;
  size_t nbytes() const { return bytes_.size(); }

 private:
  SectionFile() = default;
  void check(const std::string& path);
  std::string_view bytes_;
  std::vector<Section> sections_;
};

}  // namespace tutti::deploy
