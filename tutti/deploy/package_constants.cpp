#include "tutti/deploy/package_constants.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>

#include "tutti/tensor/host_read.h"

namespace tutti::deploy {
namespace {

// Memory that goes back to the system with its last user: the program's allocator would keep it.
Tensor new_bytes(int64_t nbytes) {
  constexpr size_t kAlignment = 64;
  const size_t rounded = (static_cast<size_t>(nbytes) + kAlignment) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return Tensor::from_memory(memory, {nbytes}, DType::u8, [memory] { std::free(memory); });
}

}  // namespace

PackageConstants::PackageConstants(const Manifest& manifest, Set of_file)
    : manifest_(manifest), current_(std::make_shared<const Set>(std::move(of_file))) {}

std::shared_ptr<const PackageConstants::Set> PackageConstants::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

const PackageNamedConstant& PackageConstants::find(const std::string& name) const {
  std::string names;
  for (const PackageNamedConstant& c : manifest_.named_constants) {
    if (c.name == name) return c;
    names += (names.empty() ? "" : ", ") + c.name;
  }
  throw UsageError(fmt::format(
      "{}: there is no constant '{}'; {}", manifest_.function, name,
      names.empty() ? "the package names none, see PackageOptions::constants" : "the package names " + names));
}

void PackageConstants::set(std::span<const NewConstant> values) {
  std::set<std::string> seen;
  for (const NewConstant& v : values) {
    const PackageNamedConstant& c = find(v.name);
    TUTTI_CHECK(seen.insert(v.name).second, "{}: the constant '{}' is given twice", manifest_.function, v.name);
    TUTTI_CHECK(v.value.dtype() == c.dtype && v.value.extents() == c.sizes,
                "{}: the constant '{}' is {} {}, and cannot become {} {}", manifest_.function, c.name, name_of(c.dtype),
                c.sizes, name_of(v.value.dtype()), v.value.extents());
    before_host_read(v.value);
  }
  const std::lock_guard setting(setting_);
  auto next = std::make_shared<Set>(*current());
  std::set<int32_t> own;  // whose memory is that of the new set
  for (const NewConstant& v : values) {
    const PackageNamedConstant& c = find(v.name);
    Tensor& bytes = (*next)[static_cast<size_t>(c.constant)];
    if (own.insert(c.constant).second) {
      const Tensor before = bytes;
      bytes = new_bytes(before.nbytes());
      if (c.nbytes() < before.nbytes())
        std::memcpy(bytes.raw_data(), before.raw_data(), static_cast<size_t>(before.nbytes()));
    }
    const Tensor dense = to_contiguous(v.value);
    if (c.nbytes() > 0)
      std::memcpy(static_cast<char*>(bytes.raw_data()) + c.first, dense.raw_data(), static_cast<size_t>(c.nbytes()));
  }
  for (const int32_t i : own) (*next)[static_cast<size_t>(i)].storage()->set_read_only();
  std::shared_ptr<const Set> last = std::move(next);
  {
    const std::lock_guard lock(mutex_);
    std::swap(current_, last);
  }
}

}  // namespace tutti::deploy
