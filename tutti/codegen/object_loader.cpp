#include "tutti/codegen/object_loader.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

constexpr uint64_t kAbsent = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kLargestBlob = uint64_t{1} << 30;

// Bounds-checked reading of the object; every access of the parser goes through it.
class ObjectView {
 public:
  explicit ObjectView(std::string_view bytes) : bytes_(bytes) {
    header_ = at<Elf64_Ehdr>(0);
    TUTTI_ASSERT(std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 && header_.e_ident[EI_CLASS] == ELFCLASS64 &&
                     header_.e_type == ET_REL && header_.e_machine == EM_X86_64 &&
                     header_.e_shentsize == sizeof(Elf64_Shdr),
                 "not an x86-64 relocatable object");
    for (int i = 0; i < header_.e_shnum; ++i)
      sections_.push_back(at<Elf64_Shdr>(header_.e_shoff + static_cast<uint64_t>(i) * sizeof(Elf64_Shdr)));
  }

  const std::vector<Elf64_Shdr>& sections() const { return sections_; }

  std::string_view contents(const Elf64_Shdr& section) const {
    TUTTI_ASSERT(section.sh_offset <= bytes_.size() && section.sh_size <= bytes_.size() - section.sh_offset,
                 "section of {} bytes at {} in an object of {}", section.sh_size, section.sh_offset, bytes_.size());
    return bytes_.substr(section.sh_offset, section.sh_size);
  }

  template <class T>
  std::vector<T> table(const Elf64_Shdr& section) const {
    const std::string_view bytes = contents(section);
    TUTTI_ASSERT(bytes.size() % sizeof(T) == 0, "table of {} bytes", bytes.size());
    std::vector<T> items(bytes.size() / sizeof(T));
    std::memcpy(items.data(), bytes.data(), bytes.size());
    return items;
  }

  std::string_view string_at(const Elf64_Shdr& strings, uint64_t offset) const {
    const std::string_view all = contents(strings);
    TUTTI_ASSERT(offset < all.size(), "name at {} of {}", offset, all.size());
    return all.substr(offset, all.find('\0', offset) - offset);
  }

  const Elf64_Shdr& section(uint64_t index) const {
    TUTTI_ASSERT(index < sections_.size(), "section {} of {}", index, sections_.size());
    return sections_[index];
  }

  std::string_view name(const Elf64_Shdr& s) const { return string_at(section(header_.e_shstrndx), s.sh_name); }

 private:
  template <class T>
  T at(uint64_t offset) const {
    TUTTI_ASSERT(offset <= bytes_.size() && sizeof(T) <= bytes_.size() - offset, "object of {} bytes ends early",
                 bytes_.size());
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  std::string_view bytes_;
  Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
};

// Unwind tables serve exceptions and debuggers; kernels throw nothing.
bool is_loaded(const ObjectView& object, const Elf64_Shdr& section) {
  return (section.sh_flags & SHF_ALLOC) != 0 && section.sh_size > 0 && object.name(section) != ".eh_frame";
}

// Offset of each section in the blob, and the sections' bytes in it.
std::vector<uint64_t> lay_out(const ObjectView& object, std::string& blob) {
  std::vector<uint64_t> offsets(object.sections().size(), kAbsent);
  for (size_t i = 0; i < offsets.size(); ++i) {
    const Elf64_Shdr& section = object.sections()[i];
    if (!is_loaded(object, section)) continue;
    TUTTI_ASSERT(section.sh_type == SHT_PROGBITS && (section.sh_flags & SHF_WRITE) == 0,
                 "kernel object has writable or unusual section {}", object.name(section));
    const uint64_t alignment = std::max<uint64_t>(section.sh_addralign, 1);
    TUTTI_ASSERT((alignment & (alignment - 1)) == 0 && alignment <= 4096, "section alignment {}", alignment);
    blob.resize((blob.size() + alignment - 1) & ~(alignment - 1));
    offsets[i] = blob.size();
    blob += object.contents(section);
    TUTTI_ASSERT(blob.size() < kLargestBlob, "kernel code of {} bytes", blob.size());
  }
  return offsets;
}

uint64_t symbol_offset(const ObjectView& object, const Elf64_Shdr& symbols, const Elf64_Sym& symbol,
                       std::span<const uint64_t> offsets) {
  const uint64_t section = symbol.st_shndx;
  TUTTI_ASSERT(section != SHN_UNDEF && section < offsets.size() && offsets[section] != kAbsent,
               "kernel object refers to '{}', which it does not define",
               object.string_at(object.section(symbols.sh_link), symbol.st_name));
  return offsets[section] + symbol.st_value;
}

void apply(const ObjectView& object, const Elf64_Shdr& table, std::span<const uint64_t> offsets, std::string& blob) {
  const Elf64_Shdr& symbol_section = object.section(table.sh_link);
  const auto symbols = object.table<Elf64_Sym>(symbol_section);
  const uint64_t base = offsets[table.sh_info];
  const uint64_t size = object.section(table.sh_info).sh_size;
  for (const Elf64_Rela& rela : object.table<Elf64_Rela>(table)) {
    const uint64_t type = ELF64_R_TYPE(rela.r_info), index = ELF64_R_SYM(rela.r_info);
    TUTTI_ASSERT(index < symbols.size(), "symbol {} of {}", index, symbols.size());
    const bool wide = type == R_X86_64_PC64;
    TUTTI_ASSERT(wide || type == R_X86_64_PC32 || type == R_X86_64_PLT32, "kernel object has relocation type {}", type);
    const uint64_t width = wide ? 8 : 4;
    TUTTI_ASSERT(rela.r_offset <= size && width <= size - rela.r_offset, "relocation at {} of {}", rela.r_offset, size);
    const uint64_t place = base + rela.r_offset;
    // Modulo 2^64: the numbers come from a file.
    const auto distance = static_cast<int64_t>(symbol_offset(object, symbol_section, symbols[index], offsets) +
                                               static_cast<uint64_t>(rela.r_addend) - place);
    TUTTI_ASSERT(wide || distance == static_cast<int32_t>(distance), "relocation distance {}", distance);
    std::memcpy(blob.data() + place, &distance, width);  // little endian: the low half comes first
  }
}

uint64_t find_entry(const ObjectView& object, std::string_view entry_name, std::span<const uint64_t> offsets) {
  for (const Elf64_Shdr& section : object.sections()) {
    if (section.sh_type != SHT_SYMTAB) continue;
    for (const Elf64_Sym& symbol : object.table<Elf64_Sym>(section)) {
      if (object.string_at(object.section(section.sh_link), symbol.st_name) == entry_name)
        return symbol_offset(object, section, symbol, offsets);
    }
  }
  throw InternalError(fmt::format("kernel object has no function '{}'", entry_name));
}

}  // namespace

CodeBlob link_object(std::string_view object_bytes, std::string_view entry_name) {
  const ObjectView object(object_bytes);
  CodeBlob blob;
  const std::vector<uint64_t> offsets = lay_out(object, blob.bytes);
  for (const Elf64_Shdr& section : object.sections()) {
    if (section.sh_type == SHT_REL) throw InternalError("kernel object has relocations without addends");
    if (section.sh_type != SHT_RELA || section.sh_info >= offsets.size() || offsets[section.sh_info] == kAbsent)
      continue;
    apply(object, section, offsets, blob.bytes);
  }
  blob.entry = find_entry(object, entry_name, offsets);
  TUTTI_ASSERT(blob.entry < blob.bytes.size(), "entry at {} of {}", blob.entry, blob.bytes.size());
  return blob;
}

KernelEntry map_code(std::string_view bytes, uint64_t entry) {
  TUTTI_ASSERT(entry < bytes.size(), "entry at {} of {}", entry, bytes.size());
  void* memory = mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TUTTI_CHECK_ENV(memory != MAP_FAILED, "cannot map {} bytes for a kernel: {}", bytes.size(),
                  detail::errno_text(errno));
  std::memcpy(memory, bytes.data(), bytes.size());
  if (mprotect(memory, bytes.size(), PROT_READ | PROT_EXEC) != 0) {
    const int error = errno;
    munmap(memory, bytes.size());
    TUTTI_CHECK_ENV(false, "cannot make kernel code executable: {}; a security policy of this system may forbid it",
                    detail::errno_text(error));
  }
  return reinterpret_cast<KernelEntry>(static_cast<char*>(memory) + entry);
}

}  // namespace tutti::codegen
