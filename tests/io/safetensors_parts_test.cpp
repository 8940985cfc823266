#include "tutti/io/safetensors_parts.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/safetensors.h"

namespace tutti {
namespace {

using testing::read_whole_file;
using testing::TemporaryFolder;

// Bytes that differ from element to element.
Tensor counted(const Extents& sizes, DType dtype = DType::f32) {
  const Tensor t = Tensor::empty(sizes, dtype);
  auto* bytes = static_cast<uint8_t*>(t.raw_data());
  for (int64_t i = 0; i < t.nbytes(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return t;
}

Tensor box_of(const Tensor& whole, const Extents& first, const Extents& sizes) {
  int64_t offset = whole.offset();
  for (int d = 0; d < sizes.ndim(); ++d)
    offset += first[static_cast<size_t>(d)] * whole.strides()[static_cast<size_t>(d)];
  return whole.view_as(sizes, whole.strides(), offset);
}

// The bytes do not tell who wrote what.
TEST(SafetensorsParts, GiveTheBytesOfOneWriter) {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, Tensor>> tensors = {{"a", counted({5, 4, 3})},
                                                               {"b", counted({7}, DType::bf16)},
                                                               {"scalar", counted({}, DType::i64)},
                                                               {"empty", counted({0, 3})}};
  write_safetensors(folder / "whole", tensors, {{"format", "pt"}});
  std::vector<io::SafetensorsEntry> entries;
  for (const auto& [name, t] : tensors) entries.push_back({.name = name, .dtype = t.dtype(), .shape = t.extents()});
  const auto open = [&] { return SafetensorsParts(folder / "parts", entries, {{"format", "pt"}}); };
  SafetensorsParts first = open(), second = open();
  first.create();
  // Boxes that cut each dim of "a", so that runs of every kind are written.
  const std::vector<std::pair<Extents, Extents>> boxes = {{{0, 0, 0}, {2, 4, 3}},
                                                          {{2, 0, 0}, {3, 1, 3}},
                                                          {{2, 1, 0}, {3, 3, 2}},
                                                          {{2, 1, 2}, {3, 3, 1}},
                                                          {{5, 0, 0}, {0, 4, 3}}};
  for (size_t b = 0; b < boxes.size(); ++b)
    (b % 2 == 0 ? first : second)
        .write("a", boxes[b].first, box_of(tensors[0].second, boxes[b].first, boxes[b].second));
  second.write("b", {3}, box_of(tensors[1].second, {3}, {4}));
  first.write("b", {0}, box_of(tensors[1].second, {0}, {3}));
  second.write("scalar", {}, tensors[2].second);
  first.sync();
  second.sync();
  EXPECT_EQ(read_whole_file(folder / "parts"), read_whole_file(folder / "whole"));
}

TEST(SafetensorsParts, RefuseWhatTheFileDoesNotHave) {
  const TemporaryFolder folder;
  SafetensorsParts file(folder / "parts", {{.name = "a", .dtype = DType::f32, .shape = {5, 4}}});
  EXPECT_THROW(file.write("a", {0, 0}, counted({5, 4})), EnvironmentError) << "nobody has created it";
  file.create();
  EXPECT_THROW(file.create(), EnvironmentError);
  EXPECT_THROW(file.write("c", {0, 0}, counted({5, 4})), UsageError);
  EXPECT_THROW(file.write("a", {1, 0}, counted({5, 4})), UsageError);
  EXPECT_THROW(file.write("a", {0, -1}, counted({5, 4})), UsageError);
  EXPECT_THROW(file.write("a", {0}, counted({5})), UsageError);
  EXPECT_THROW(file.write("a", {0, 0}, counted({5, 4}, DType::bf16)), UsageError);
  EXPECT_THROW(SafetensorsParts(folder / "twice", {{.name = "a", .shape = {1}}, {.name = "a", .shape = {1}}}),
               UsageError);
}

}  // namespace
}  // namespace tutti
