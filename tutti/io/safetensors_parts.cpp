#include "tutti/io/safetensors_parts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/runtime/held_signal.h"

namespace tutti {
namespace {

void write_at(int file, const std::string& path, const std::byte* bytes, int64_t count, int64_t at) {
  const HeldSignal held(SIGXFSZ);
  while (count > 0) {
    const ssize_t written = pwrite(file, bytes, static_cast<size_t>(count), at);
    if (written < 0 && errno == EINTR) continue;
    TUTTI_CHECK_ENV(written > 0, "cannot write {} bytes to '{}': {}", count, path,
                    detail::errno_text(written < 0 ? errno : ENOSPC));
    bytes += written;
    at += written;
    count -= written;
  }
}

}  // namespace

SafetensorsParts::SafetensorsParts(std::string path, std::vector<io::SafetensorsEntry> tensors,
                                   std::map<std::string, std::string> metadata)
    : path_(std::move(path)),
      header_(io::safetensors_layout(std::move(tensors), std::move(metadata))),
      header_bytes_(io::safetensors_header_bytes(header_)) {}

void SafetensorsParts::create() const {
  const UniqueFd file(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  TUTTI_CHECK_ENV(file.get() >= 0, "cannot create '{}': {}", path_, detail::errno_text(errno));
  const int64_t nbytes = std::ssize(header_bytes_) + (header_.entries.empty() ? 0 : header_.entries.back().end);
  const HeldSignal held(SIGXFSZ);
  // Room is reserved where the file system can do that, so that a full disk is noticed before the first rank writes.
  const int failed = posix_fallocate(file.get(), 0, nbytes);
  if (failed == EOPNOTSUPP || failed == EINVAL)
    TUTTI_CHECK_ENV(ftruncate(file.get(), nbytes) == 0, "cannot extend '{}' to {} bytes: {}", path_, nbytes,
                    detail::errno_text(errno));
  else TUTTI_CHECK_ENV(failed == 0, "no room for the {} bytes of '{}': {}", nbytes, path_, detail::errno_text(failed));
  write_at(file.get(), path_, reinterpret_cast<const std::byte*>(header_bytes_.data()), std::ssize(header_bytes_), 0);
}

const io::SafetensorsEntry& SafetensorsParts::entry(std::string_view name) const {
  const auto found = std::find_if(header_.entries.begin(), header_.entries.end(),
                                  [&](const io::SafetensorsEntry& e) { return e.name == name; });
  TUTTI_CHECK(found != header_.entries.end(), "'{}' has no tensor '{}' among its {}", path_, name,
              header_.entries.size());
  return *found;
}

int SafetensorsParts::descriptor() {
  if (file_.get() < 0) file_ = UniqueFd(open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  TUTTI_CHECK_ENV(file_.get() >= 0, "cannot open '{}': {}", path_, detail::errno_text(errno));
  return file_.get();
}

void SafetensorsParts::write(std::string_view name, const Extents& first, const Tensor& box) {
  const io::SafetensorsEntry& whole = entry(name);
  const Extents sizes = box.extents();
  bool fits = box.dtype() == whole.dtype && sizes.ndim() == whole.shape.ndim() && first.ndim() == whole.shape.ndim();
  for (int d = 0; fits && d < sizes.ndim(); ++d) {
    const auto i = static_cast<size_t>(d);
    fits = first[i] >= 0 && first[i] + sizes[i] <= whole.shape[i];
  }
  TUTTI_CHECK(fits, "'{}': tensor '{}' is {} {}; it has no box of {} at {}", path_, name, name_of(whole.dtype),
              whole.shape, describe(box), first);
  if (box.numel() == 0) return;
  const Tensor dense = to_contiguous(box);
  const Extents strides = contiguous_strides(whole.shape);
  // The inner dims that the box has whole, and one more, are one run of bytes.
  int outer = sizes.ndim();
  while (outer > 0 && sizes[static_cast<size_t>(outer - 1)] == whole.shape[static_cast<size_t>(outer - 1)]) --outer;
  outer = std::max(outer - 1, 0);
  int64_t run = 1;
  for (int d = outer; d < sizes.ndim(); ++d) run *= sizes[static_cast<size_t>(d)];
  const int64_t item = itemsize(whole.dtype), runs = dense.numel() / run;
  const auto* bytes = static_cast<const std::byte*>(dense.raw_data());
  for (int64_t r = 0; r < runs; ++r) {
    int64_t at = 0, rest = r;
    for (int d = sizes.ndim(); d-- > 0;) {
      const auto i = static_cast<size_t>(d);
      at += first[i] * strides[i];
      if (d >= outer) continue;
      at += rest % sizes[i] * strides[i];
      rest /= sizes[i];
    }
    write_at(descriptor(), path_, bytes + r * run * item, run * item,
             std::ssize(header_bytes_) + whole.begin + at * item);
  }
}

void SafetensorsParts::sync() {
  TUTTI_CHECK_ENV(fsync(descriptor()) == 0, "cannot sync '{}': {}", path_, detail::errno_text(errno));
}

}  // namespace tutti
