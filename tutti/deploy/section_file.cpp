#include "tutti/deploy/section_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "tutti/core/blake2b.h"
#include "tutti/deploy/byte_stream.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/unique_fd.h"

namespace tutti::deploy {
namespace {

constexpr std::string_view kMagic = "TUTTIPKG";
constexpr size_t kHashNbytes = 32, kHashPlace = 24, kTablePlace = 64, kRowNbytes = 56;
constexpr size_t kMostSections = (kPage - kTablePlace) / kRowNbytes;
constexpr uint32_t kNumKinds = static_cast<uint32_t>(SectionKind::provenance) + 1;

std::string hash_of(std::string_view bytes) {
  Blake2b hash(kHashNbytes);
  hash.add(bytes);
  return hash.finish();
}

size_t whole_pages(size_t nbytes) { return (nbytes + kPage - 1) / kPage * kPage; }

bool is_zero(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
}

std::string hash_of_page(std::string_view page) {
  std::string copy(page);
  copy.replace(kHashPlace, kHashNbytes, kHashNbytes, '\0');
  return hash_of(copy);
}

}  // namespace

const char* name_of(SectionKind kind) {
  constexpr const char* kNames[] = {"manifest", "plans", "kernels", "code", "constants", "provenance"};
  return kNames[static_cast<size_t>(kind)];
}

void write_sections(const std::string& path, std::span<const Section> sections) {
  TUTTI_ASSERT(sections.size() <= kMostSections, "{} sections", sections.size());
  size_t end = kPage;
  ByteWriter table;
  for (const Section& s : sections) {
    table.put(s.kind);
    table.put(static_cast<uint32_t>(s.level));
    table.put(static_cast<uint64_t>(end));
    table.put(static_cast<uint64_t>(s.bytes.size()));
    for (const char c : hash_of(s.bytes)) table.put(c);
    end = whole_pages(end + s.bytes.size());
  }
  ByteWriter head;
  for (const char c : kMagic) head.put(c);
  head.put(kFormatVersion);
  head.put(static_cast<uint32_t>(sections.size()));
  head.put(static_cast<uint64_t>(end));
  std::string page = head.take();
  page.resize(kTablePlace);
  page += table.take();
  page.resize(kPage);
  page.replace(kHashPlace, kHashNbytes, hash_of_page(page));
  AtomicFile file(path);
  file.write(page);
  for (const Section& s : sections) {
    file.write(s.bytes);
    file.write(std::string(whole_pages(s.bytes.size()) - s.bytes.size(), '\0'));
  }
  file.commit(Outlives::process);
}

std::shared_ptr<const SectionFile> SectionFile::open(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto refuse = [&](const char* what) {
    const int error = errno;
    throw PackageError(PackageError::Kind::file,
                       fmt::format("cannot {} the package {}: {}", what, path, detail::errno_text(error)));
  };
  if (!file) refuse("open");
  struct stat status{};
  if (fstat(file.get(), &status) != 0) refuse("look at");
  TUTTI_CHECK_PACKAGE(S_ISREG(status.st_mode) && status.st_size >= static_cast<off_t>(kPage),
                      "{} is no package: a package is a file of at least {} bytes", path, kPage);
  const auto nbytes = static_cast<size_t>(status.st_size);
  void* memory = mmap(nullptr, nbytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) refuse("map");
  std::shared_ptr<SectionFile> opened(new SectionFile);
  opened->bytes_ = {static_cast<const char*>(memory), nbytes};
  opened->check(path);
  return opened;
}

SectionFile::~SectionFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

void SectionFile::check(const std::string& path) {
  const std::string_view page = bytes_.substr(0, kPage);
  ByteReader head(page.substr(kMagic.size()), "first page");
  TUTTI_CHECK_PACKAGE(page.starts_with(kMagic), "{} is no package of Tutti: it does not begin with {}", path, kMagic);
  const auto version = head.get<uint32_t>(), count = head.get<uint32_t>();
  if (version != kFormatVersion) {
    throw PackageError(PackageError::Kind::version,
                       fmt::format("the package {} has format {}, this runtime reads {}; package the function again",
                                   path, version, kFormatVersion));
  }
  TUTTI_CHECK_PACKAGE(page.substr(kHashPlace, kHashNbytes) == hash_of_page(page),
                      "the first page of the package {} is damaged; copy the file again", path);
  const auto end = head.get<uint64_t>();
  TUTTI_CHECK_PACKAGE(end == bytes_.size() && count <= kMostSections,
                      "the package {} has {} bytes, and its first page says {}; copy the file again", path,
                      bytes_.size(), end);
  ByteReader table(page.substr(kTablePlace, count * kRowNbytes), "first page");
  size_t next = kPage;
  for (uint32_t i = 0; i < count; ++i) {
    Section section{table.get_up_to(static_cast<SectionKind>(kNumKinds - 1))};
    section.level = static_cast<codegen::CpuTarget>(table.get_up_to(uint32_t{codegen::kNumCpuTargets - 1}));
    const auto first = table.get<uint64_t>(), nbytes = table.get<uint64_t>();
    TUTTI_CHECK_PACKAGE(first == next && nbytes <= bytes_.size() - first,
                        "the {} of the package {} are said to be {} bytes at {}", name_of(section.kind), path, nbytes,
                        first);
    next = whole_pages(first + nbytes);
    section.bytes = bytes_.substr(first, nbytes);
    for (size_t k = 0; k < kHashNbytes; ++k) section.hash += table.get<char>();
    TUTTI_CHECK_PACKAGE(next <= bytes_.size() && section.hash == hash_of(section.bytes) &&
                            is_zero(bytes_.substr(first + nbytes, next - first - nbytes)),
                        "the {} of the package {} are damaged; copy the file again", name_of(section.kind), path);
    TUTTI_CHECK_PACKAGE(find(section.kind, section.level) == nullptr, "the package {} has two sections {}", path,
                        name_of(section.kind));
    sections_.push_back(std::move(section));
  }
  TUTTI_CHECK_PACKAGE(next == bytes_.size(), "the package {} goes on behind its last section", path);
}

const Section* SectionFile::find(SectionKind kind, codegen::CpuTarget level) const {
  const auto it = std::find_if(sections_.begin(), sections_.end(),
                               [&](const Section& s) { return s.kind == kind && s.level == level; });
  return it == sections_.end() ? nullptr : &*it;
}

const Section& SectionFile::get(SectionKind kind) const {
  const Section* found = find(kind);
  TUTTI_CHECK_PACKAGE(found != nullptr, "the package has no {}", name_of(kind));
  return *found;
}

}  // namespace tutti::deploy
