#include "tutti/io/gguf_writer.h"

#include <algorithm>

#include "tutti/core/block_codec.h"
#include "tutti/core/error.h"
#include "tutti/io/gguf_layout.h"
#include "tutti/runtime/thread_pool.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

// Multiples of every block: converted by a thread at a time, and before they are written.
constexpr int64_t kGrainElements = int64_t{1} << 13, kPieceElements = 128 * kGrainElements;

// The elements [begin, begin + values.size()) of a dense tensor of floats as f32.
void load_floats(const Tensor& dense, int64_t begin, std::span<float> values) {
  const auto* bytes = static_cast<const std::byte*>(dense.raw_data()) + begin * itemsize(dense.dtype());
  if (const auto format = block_format_of(dense.dtype()); format && can_decode(*format))
    return decode_blocks(*format, {bytes, values.size() * static_cast<size_t>(itemsize(dense.dtype()))}, values);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(load_as_double(bytes + static_cast<int64_t>(i) * itemsize(dense.dtype()), dense.dtype()));
}

// The elements [begin, begin + count) in the format, several grains at once.
void encode_piece(const Tensor& dense, int64_t begin, int64_t count, BlockFormat format, std::span<std::byte> blocks) {
  const int64_t grains = (count + kGrainElements - 1) / kGrainElements;
  ThreadPool::current().parallel_for(grains, 1, [&](int64_t first, int64_t end) {
    std::vector<float> values;
    for (int64_t grain = first; grain < end; ++grain) {
      const int64_t at = grain * kGrainElements, size = std::min(kGrainElements, count - at);
      values.resize(static_cast<size_t>(size));
      load_floats(dense, begin + at, values);
      encode_blocks(format, values,
                    blocks.subspan(static_cast<size_t>(*block_nbytes(format, at)),
                                   static_cast<size_t>(*block_nbytes(format, size))));
    }
  });
}

}  // namespace

GgufWriter::GgufWriter(const std::string& path, std::vector<io::GgufEntry> entries, ModelMetadata metadata)
    : path_(path), header_(io::gguf_layout(std::move(entries), std::move(metadata))), file_(path) {
  file_.write(io::gguf_header_bytes(header_));
}

const io::GgufEntry& GgufWriter::begin(std::string_view name) {
  TUTTI_CHECK(next_ < header_.entries.size(), "'{}': all {} tensors are written; '{}' is not among them", path_,
              header_.entries.size(), name);
  const io::GgufEntry& entry = header_.entries[next_];
  TUTTI_CHECK(entry.name == name, "'{}': tensor {} of {} is '{}', not '{}'; write them in the order of entries()",
              path_, next_ + 1, header_.entries.size(), entry.name, name);
  return entry;
}

void GgufWriter::pad(const io::GgufEntry& entry) {
  const std::string zeros(static_cast<size_t>(io::gguf_padded(entry.end, header_.alignment) - entry.end), '\0');
  file_.write(zeros);
  ++next_;
}

void GgufWriter::write(std::string_view name, const Tensor& values) {
  const io::GgufEntry& entry = begin(name);
  TUTTI_CHECK(values.defined() && values.device().kind == DeviceKind::cpu && values.extents() == entry.shape,
              "'{}': tensor '{}' is {}; expected {} on the cpu", path_, name, describe(values), entry.shape);
  const Tensor dense = to_contiguous(values);
  const auto* bytes = static_cast<const std::byte*>(dense.raw_data());
  if (row_of(entry.format).dtype == dense.dtype()) {
    file_.write(bytes, static_cast<size_t>(dense.nbytes()));
    return pad(entry);
  }
  TUTTI_CHECK(
      is_floating(dense.dtype()) && can_encode(entry.format),
      "'{}': tensor '{}' is {}, which is not converted to {}; floats are written as F32, F16, BF16 and Q4_0 to Q6_K",
      path_, name, describe(values), name_of(entry.format));
  std::vector<std::byte> blocks;
  for (int64_t done = 0; done < dense.numel(); done += kPieceElements) {
    const int64_t count = std::min(kPieceElements, dense.numel() - done);
    blocks.resize(static_cast<size_t>(*block_nbytes(entry.format, count)));
    try {
      encode_piece(dense, done, count, entry.format, blocks);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("'{}': tensor '{}': {}", path_, name, error.what()));
    }
    file_.write(blocks.data(), blocks.size());
  }
  pad(entry);
}

void GgufWriter::write_bytes(std::string_view name, std::span<const std::byte> bytes) {
  const io::GgufEntry& entry = begin(name);
  TUTTI_CHECK(std::ssize(bytes) == entry.end - entry.begin, "'{}': tensor '{}' {} {} takes {} bytes, {} are given",
              path_, name, entry.shape, name_of(entry.format), entry.end - entry.begin, bytes.size());
  file_.write(bytes.data(), bytes.size());
  pad(entry);
}

void GgufWriter::commit() {
  TUTTI_CHECK(next_ == header_.entries.size(), "'{}': {} of {} tensors are written, '{}' is missing", path_, next_,
              header_.entries.size(), header_.entries[next_].name);
  file_.commit();
}

}  // namespace tutti
