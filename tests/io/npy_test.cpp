#include "tutti/io/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"

namespace tutti {
namespace {

using testing::read_whole_file;
using testing::TemporaryFolder;

// A file of version `major` with this dict and data.
std::string file_of(const std::string& dict, const std::string& data, int major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  const uint32_t length = static_cast<uint32_t>(dict.size());
  bytes.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  return bytes + dict + data;
}

Tensor parse(const std::string& bytes) { return parse_npy(std::as_bytes(std::span(bytes)), "array.npy"); }

std::string message_of(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("'array.npy'"), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

std::string dict(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

int64_t element(const Tensor& t, int64_t i, int64_t j) {
  const int64_t at = i * t.strides()[0] + j * t.strides()[1];
  return load_as_int64(static_cast<char*>(t.raw_data()) + at * itemsize(t.dtype()), t.dtype());
}

TEST(Npy, RoundTripsEveryTypeNumPyHas) {
  TemporaryFolder folder;
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::i64, DType::i32, DType::i16, DType::i8, DType::u8, DType::boolean}) {
    const Tensor tensor = Tensor::empty({2, 3}, dtype);
    for (int64_t i = 0; i < 6; ++i) {
      store_from_double(static_cast<char*>(tensor.raw_data()) + i * itemsize(dtype), dtype, static_cast<double>(i));
    }
    write_npy(folder / "a.npy", tensor);
    const Tensor read = read_npy(folder / "a.npy");
    EXPECT_EQ(read.dtype(), dtype);
    EXPECT_EQ(read.extents(), (Extents{2, 3}));
    EXPECT_EQ(std::memcmp(read.raw_data(), tensor.raw_data(), static_cast<size_t>(tensor.nbytes())), 0);
  }
}

TEST(Npy, WritesAPythonDictPaddedTo64Bytes) {
  TemporaryFolder folder;
  write_npy(folder / "a.npy", Tensor::of<float>({1.0f, 2.0f, 3.0f}));
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  header.resize(117, ' ');
  EXPECT_EQ(read_whole_file(folder / "a.npy"), file_of(header + "\n", raw({1.0f, 2.0f, 3.0f})));
  write_npy(folder / "b.npy", Tensor::empty({3, 4}));
  EXPECT_NE(read_whole_file(folder / "b.npy").find("'shape': (3, 4), }"), std::string::npos);
}

TEST(Npy, RoundTripsScalarsAndEmptyArrays) {
  TemporaryFolder folder;
  write_npy(folder / "s.npy", Tensor::scalar(int64_t{-7}));
  EXPECT_EQ(read_npy(folder / "s.npy").item_int(), -7);
  write_npy(folder / "e.npy", Tensor::empty({3, 0}, DType::f64));
  EXPECT_EQ(read_npy(folder / "e.npy").extents(), (Extents{3, 0}));
}

TEST(Npy, ReadsAllVersions) {
  for (const int major : {1, 2, 3}) {
    EXPECT_EQ(parse(file_of(dict("<i4", "(1,)"), raw<int32_t>({5}), major)).item_int(), 5) << major;
  }
}

TEST(Npy, ReadsFortranOrder) {
  const Tensor tensor = parse(file_of(dict("<i2", "(2, 3)", "True"), raw<int16_t>({1, 4, 2, 5, 3, 6})));
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(element(tensor, i, j), i * 3 + j + 1);
  }
}

TEST(Npy, ReadsTheOtherByteOrder) {
  EXPECT_EQ(parse(file_of(dict(">i4", "()"), std::string("\0\0\1\2", 4))).item_int(), 258);
}

TEST(Npy, ReadsKeysInAnyOrderAndSpacing) {
  const std::string text = "{\"shape\":(2,),'fortran_order' :False,'descr': '|u1'}";
  EXPECT_EQ(parse(file_of(text, "\x01\x02")).extents(), (Extents{2}));
}

TEST(Npy, ReadsAnyNonzeroByteAsTrue) { EXPECT_EQ(parse(file_of(dict("|b1", "()"), "\x05")).item_int(), 1); }

TEST(Npy, WritesAStridedViewAsItsElements) {
  TemporaryFolder folder;
  const Tensor matrix = Tensor::of<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  write_npy(folder / "a.npy", matrix.view_as({3, 2}, {1, 3}, 0));
  EXPECT_EQ(element(read_npy(folder / "a.npy"), 0, 1), 4);
}

TEST(Npy, RefusesEveryCutOfAFile) {
  const std::string whole = file_of(dict("<f4", "(3,)"), raw({1.0f, 2.0f, 3.0f}));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(message_of(whole.substr(0, length)), "accepted") << length;
  }
  EXPECT_NE(message_of(whole + "x").find("needs 12 bytes of data, the file has 13"), std::string::npos);
}

TEST(Npy, SaysWhatIsWrongWithTheHeader) {
  const auto expect = [](const std::string& text, std::string_view part) {
    const std::string message = message_of(file_of(text, ""));
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(dict("<c8", "()"), "its type is '<c8'; supported are f8");
  expect(dict("|f4", "()"), "its type is '|f4'");
  expect("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "records are not supported");
  expect("{'descr': '<f4', 'fortran_order': False}", "lacks");
  expect("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", "'descr' twice");
  expect(dict("<f4", "(-1,)"), "bad size");
  expect(dict("<f4", "(99999999999999999999,)"), "bad size");
  expect(dict("<f4", "(4611686018427387904, 8)"), "too many");
  expect(dict("<f4", "(1,1,1,1,1,1,1,1,1)"), "more than 8 dimensions");
  expect(dict("<f4", "()") + "x", "behind the closing brace");
  expect(dict("<f4", "()", "Maybe"), "neither True nor False");
  EXPECT_NE(message_of(file_of(dict("<f4", "()"), "", 4)).find("version 4.0"), std::string::npos);
}

TEST(Npy, RefusesToWriteTypesNumPyLacks) {
  TemporaryFolder folder;
  EXPECT_THROW(write_npy(folder / "a.npy", Tensor::empty({1}, DType::bf16)), UsageError);
  EXPECT_THROW(write_npy(folder / "a.npy", Tensor()), UsageError);
  EXPECT_EQ(folder.entry_count(), 0);
}

}  // namespace
}  // namespace tutti
