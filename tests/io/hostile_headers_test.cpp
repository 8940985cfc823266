// Headers of tensor files and indices that say what no writer would.
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/npy.h"
#include "tutti/io/safetensors.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/runtime/json_writer.h"

namespace tutti {
namespace {

using namespace std::string_literals;
using testing::TemporaryFolder;

template <class Fn>
std::string refusal_of(const Fn& fn) {
  try {
    fn();
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string with_length(const std::string& header) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header;
}

std::string safetensors_of(const std::string& shape) {
  return with_length("{\"weights\": {\"dtype\": \"F32\", \"shape\": [" + shape + "], \"data_offsets\": [0, 0]}}");
}

std::string npy_of(const std::string& shape) {
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
  text.resize(118, ' ');
  const auto length = static_cast<uint16_t>(text.size());
  return "\x93NUMPY\x01\0"s + std::string(reinterpret_cast<const char*>(&length), 2) + text;
}

struct Format {
  const char* name;
  std::string (*bytes_of)(const std::string& shape);
  void (*read)(const std::string& path);
  const char* tensor;  // what the message names besides the file
};
const Format kFormats[] = {
    {"a.safetensors", safetensors_of, [](const std::string& path) { SafetensorsFile(path).tensor("weights"); },
     "'weights'"},
    {"a.npy", npy_of, [](const std::string& path) { read_npy(path); }, "shape"},
};

// A tensor without elements has strides, which are products of its other sizes.
TEST(HeadersOfTensors, WhoseSizesDoNotFitAreRefusedByFileAndTensorWhereverAZeroStands) {
  TemporaryFolder folder;
  const std::vector<std::string> huge = {"4611686018427387904, 4611686018427387904", "9223372036854775807",
                                         "4294967296, 4294967296", "2147483648, 2147483648, 2"};
  for (const Format& format : kFormats) {
    for (const std::string& sizes : huge) {
      for (const std::string& shape : {sizes + ", 0", "0, " + sizes, "0, " + sizes + ", 0", sizes}) {
        const std::string path = folder.write(format.name, format.bytes_of(shape));
        const std::string message = refusal_of([&] { format.read(path); });
        EXPECT_NE(message.find(path), std::string::npos) << shape << ": " << message;
        EXPECT_NE(message.find(format.tensor), std::string::npos) << shape << ": " << message;
        EXPECT_NE(message.find(sizes), std::string::npos) << shape << ": " << message;
      }
    }
    for (const char* shape : {"0,", "3, 0", "0, 0, 0", "1073741824, 1073741824, 0", "0, 2305843009213693951"}) {
      if (std::string(shape) == "0," && std::string(format.name) == "a.safetensors") continue;  // no JSON
      const std::string path = folder.write(format.name, format.bytes_of(shape));
      EXPECT_EQ(refusal_of([&] { format.read(path); }), "accepted") << format.name << " " << shape;
    }
  }
}

TEST(IndexOfTensors, NamesFilesInItsFolderOnly) {
  TemporaryFolder folder;
  const std::vector<std::pair<std::string, Tensor>> tensors = {{"w", Tensor::empty({2}, DType::f32)}};
  folder.write("inner/x", "");
  for (const char* file : {"real.safetensors", "inner/real.safetensors", "inner/x.safetensors"})
    write_safetensors(folder / file, tensors);
  for (const std::string& name :
       {""s, "."s, ".."s, "../real.safetensors"s, "x/../real.safetensors"s, folder / "real.safetensors",
        "real.safetensors\0"s, "real.safetensors\0.other"s, "\0real.safetensors"s, "inner/"s, "./x.safetensors"s}) {
    const std::string index =
        folder.write("inner/model.safetensors.index.json", "{\"weight_map\": {\"w\": " + json_quoted(name) + "}}");
    const std::string message = refusal_of([&] { SafetensorsShards{index}; });
    EXPECT_EQ(message.find(index), 0u) << json_quoted(name) << ": " << message;
    EXPECT_NE(message.find("expected the name of a file in the folder of the index, found " + json_quoted(name)),
              std::string::npos)
        << message;
  }
  const std::string index =
      folder.write("inner/model.safetensors.index.json", "{\"weight_map\": {\"w\": \"x.safetensors\"}}");
  EXPECT_EQ(refusal_of([&] { SafetensorsShards{index}; }), "accepted");
}

TEST(MappedFile, RefusesANameWithAZeroByte) {
  TemporaryFolder folder;
  const std::string path = folder.write("a", "text");
  EXPECT_NE(refusal_of([&] { MappedFile(path + "\0b"s); }).find("of its name is zero, where the system ends a name"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti
