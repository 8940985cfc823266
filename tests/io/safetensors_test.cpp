#include "tutti/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

using testing::read_whole_file;
using testing::TemporaryFolder;
using Named = std::vector<std::pair<std::string, Tensor>>;

std::string bytes_of(const Tensor& tensor) {
  const Tensor dense = to_contiguous(tensor);
  return {static_cast<const char*>(dense.raw_data()), static_cast<size_t>(dense.nbytes())};
}

Tensor numbered(const Extents& sizes, DType dtype) {
  const Tensor tensor = Tensor::empty(sizes, dtype);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    store_from_double(static_cast<char*>(tensor.raw_data()) + i * itemsize(dtype), dtype, static_cast<double>(i % 5));
  }
  return tensor;
}

TEST(Safetensors, RoundTripsEveryDtype) {
  TemporaryFolder folder;
  Named tensors;
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    tensors.emplace_back(std::string(name_of(dtype)), numbered({3, 1, 5}, dtype));
  }
  write_safetensors(folder / "all", tensors, {{"step", "12"}});
  const SafetensorsFile file(folder / "all");
  EXPECT_EQ(file.entries().size(), tensors.size());
  EXPECT_EQ(file.metadata().at("step"), "12");
  for (const auto& [name, tensor] : tensors) {
    const Tensor read = file.tensor(name);
    EXPECT_EQ(read.dtype(), tensor.dtype());
    EXPECT_EQ(read.extents(), tensor.extents());
    EXPECT_EQ(bytes_of(read), bytes_of(tensor)) << name;
  }
}

TEST(Safetensors, RoundTripsScalarsAndEmptyTensors) {
  TemporaryFolder folder;
  const Named tensors = {{"scalar", Tensor::scalar(2.5f)}, {"empty", Tensor::empty({0, 4}, DType::i64)}};
  write_safetensors(folder / "file", tensors);
  const SafetensorsFile file(folder / "file");
  EXPECT_EQ(file.tensor("scalar").item(), 2.5);
  EXPECT_EQ(file.tensor("empty").extents(), (Extents{0, 4}));
}

TEST(Safetensors, WritesAStridedViewAsItsElements) {
  TemporaryFolder folder;
  const Tensor matrix = Tensor::of<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Named tensors = {{"t", matrix.view_as({3, 2}, {1, 3}, 0)}};
  write_safetensors(folder / "file", tensors);
  const Tensor read = SafetensorsFile(folder / "file").tensor("t");
  EXPECT_EQ(bytes_of(read), bytes_of(Tensor::of<int32_t>({1, 4, 2, 5, 3, 6}, {3, 2})));
}

TEST(Safetensors, ViewsAreReadOnlyAndOutliveTheFileObject) {
  TemporaryFolder folder;
  write_safetensors(folder / "file", Named{{"x", Tensor::of<float>({1, 2})}});
  Tensor view;
  {
    const SafetensorsFile file(folder / "file");
    view = file.tensor("x");
    EXPECT_EQ(file.tensor("x").raw_data(), view.raw_data());
  }
  write_safetensors(folder / "file", Named{{"x", Tensor::of<float>({7, 8})}});
  EXPECT_TRUE(view.storage()->is_read_only());
  EXPECT_EQ(view.data<float>()[1], 2.0f);
}

TEST(Safetensors, CopiesDataThatIsNotAligned) {
  TemporaryFolder folder;
  const std::string json =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  const uint64_t length = json.size();
  const float value = 1.5f;
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  bytes += json + "\x07" + std::string(reinterpret_cast<const char*>(&value), 4);
  const SafetensorsFile file(folder.write("file", bytes));
  EXPECT_EQ(file.tensor("b").item(), 1.5);
  EXPECT_EQ(file.tensor("a").item_int(), 7);
}

TEST(Safetensors, AlignsEveryTensorItWrites) {
  TemporaryFolder folder;
  write_safetensors(folder / "file", Named{{"a", numbered({3}, DType::u8)},
                                           {"b", numbered({5}, DType::bf16)},
                                           {"c", numbered({3}, DType::f64)},
                                           {"d", numbered({1}, DType::f32)}});
  const SafetensorsFile file(folder / "file");
  EXPECT_EQ(file.entries()[0].name, "c");
  for (const io::SafetensorsEntry& entry : file.entries()) {
    EXPECT_TRUE(file.tensor(entry.name).storage()->is_read_only()) << entry.name;
  }
}

TEST(Safetensors, GivesEqualBytesForEqualContentInAnyOrder) {
  TemporaryFolder folder;
  const Tensor x = numbered({4}, DType::f32), y = numbered({2, 2}, DType::f32);
  write_safetensors(folder / "1", Named{{"x", x}, {"y", y}});
  write_safetensors(folder / "2", Named{{"y", y}, {"x", x}});
  EXPECT_EQ(read_whole_file(folder / "1"), read_whole_file(folder / "2"));
}

TEST(Safetensors, NamesTheNearestTensor) {
  TemporaryFolder folder;
  write_safetensors(folder / "file", Named{{"model.norm.weight", Tensor::scalar(1.0f)}});
  const SafetensorsFile file(folder / "file");
  EXPECT_TRUE(file.contains("model.norm.weight"));
  EXPECT_FALSE(file.contains("model.norm.wieght"));
  try {
    file.tensor("model.norm.wieght");
    FAIL() << "a missing tensor was found";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'model.norm.weight'?"), std::string::npos) << error.what();
  }
}

TEST(Safetensors, RefusesATruncatedFile) {
  TemporaryFolder folder;
  write_safetensors(folder / "file", Named{{"x", numbered({100}, DType::f32)}});
  const std::string whole = read_whole_file(folder / "file");
  EXPECT_THROW(SafetensorsFile(folder.write("cut", whole.substr(0, whole.size() - 1))), EnvironmentError);
  EXPECT_THROW(SafetensorsFile(folder.write("longer", whole + "x")), EnvironmentError);
  EXPECT_THROW(SafetensorsFile(folder.write("empty", "")), EnvironmentError);
  EXPECT_THROW(SafetensorsFile(folder / "missing"), EnvironmentError);
}

TEST(Safetensors, RefusesBytesThatAreNoBool) {
  TemporaryFolder folder;
  write_safetensors(folder / "file", Named{{"x", Tensor::of<uint8_t>({1, 2})}});
  std::string bytes = read_whole_file(folder / "file");
  bytes.replace(bytes.find("\"U8\""), 4, "\"BOOL\"");
  bytes.erase(bytes.find("  "), 2);
  const SafetensorsFile file(folder.write("file", bytes));
  EXPECT_THROW(file.tensor("x"), EnvironmentError);
}

TEST(Safetensors, RefusesUndefinedTensors) {
  TemporaryFolder folder;
  EXPECT_THROW(write_safetensors(folder / "file", Named{{"x", Tensor()}}), UsageError);
  EXPECT_EQ(folder.entry_count(), 0);
}

}  // namespace
}  // namespace tutti
