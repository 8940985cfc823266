// Click data from text and npy files: rows in order, positions, and faults named by file, line and column.
#include "tutti/io/click_reader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <cmath>
#include <filesystem>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/generated_clicks.h"
#include "tutti/io/npy.h"

namespace tutti {
namespace {

using testing::read_whole_file;
using testing::TemporaryFolder;

const ClickColumns kColumns{.label = "label", .dense = {"a", "b"}, .categories = {{"c", 10}, {"d", 1000}}};

std::string shown(const ClickRows& rows) {
  std::string text;
  for (int64_t i = 0; i < rows.count(); ++i) {
    text += fmt::format("{}:", rows.labels.data<float>()[i]);
    for (int64_t j = 0; j < rows.dense.extent(1); ++j)
      text += fmt::format(" {:a}", rows.dense.data<float>()[i * rows.dense.extent(1) + j]);
    for (int64_t j = 0; j < rows.categories.extent(1); ++j)
      text += fmt::format(" {}", rows.categories.data<int64_t>()[i * rows.categories.extent(1) + j]);
    text += '\n';
  }
  return text;
}

// The error of reading until the end.
std::string fault_of(const std::string& path, const ClickColumns& columns = kColumns, char delimiter = ',') {
  try {
    ClickReader reader({path}, columns, {.repeats = false, .delimiter = delimiter});
    while (reader.read(3).count() > 0) {
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(ClickReader, ReadsColumnsByNameInAnyOrder) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.csv",
                                        "\xef\xbb\xbf"
                                        "d,other,label,b,c,a\r\n7,x y,1,0.5,9,-1e-3\r\n\r\n999,,0,3,0,4");
  ClickReader reader({file}, kColumns, {.repeats = false});
  const ClickRows rows = reader.read(5);
  EXPECT_EQ(shown(rows), fmt::format("1: {:a} 0x1p-1 9 7\n0: 0x1p+2 0x1.8p+1 0 999\n", -1e-3f));
  EXPECT_EQ(reader.read(5).count(), 0);
  EXPECT_EQ(reader.read(0).count(), 0);
}

TEST(ClickReader, FaultsNameFileLineAndColumn) {
  const TemporaryFolder folder;
  const std::string header = "label,a,b,c,d\n1,0,0,0,0\n";
  const auto fault = [&](const std::string& line) {
    const std::string text = fault_of(folder.write("x.csv", header + line));
    const std::string begin = "clicks: " + folder / "x.csv" + ", line 3";
    EXPECT_EQ(text.substr(0, begin.size()), begin) << text;
    return text.substr(std::min(begin.size(), text.size()));
  };
  EXPECT_EQ(fault("1,0,0,10,0\n"), ", column 'c' (field 4): '10'; expected a whole number, 0 to 9");
  EXPECT_EQ(fault("1,0,0,-1,0\n"), ", column 'c' (field 4): '-1'; expected a whole number, 0 to 9");
  EXPECT_EQ(fault("1,0,0,1.5,0\n"), ", column 'c' (field 4): '1.5'; expected a whole number, 0 to 9");
  EXPECT_EQ(fault("1,0,0,9223372036854775808,0\n"),
            ", column 'c' (field 4): '9223372036854775808'; expected a whole number, 0 to 9");
  EXPECT_EQ(fault("1,0,0,,0\n"), ", column 'c' (field 4): ''; expected a whole number, 0 to 9");
  EXPECT_EQ(fault("1,nan,0,0,0"), ", column 'a' (field 2): 'nan'; expected a finite number");
  EXPECT_EQ(fault("1,0, 1,0,0"), ", column 'b' (field 3): ' 1'; expected a finite number");
  EXPECT_EQ(fault("1,1e39,0,0,0"), ", column 'a' (field 2): '1e39'; expected a finite number");
  EXPECT_EQ(fault("1,1e400,0,0,0"), ", column 'a' (field 2): '1e400'; expected a finite number");
  EXPECT_EQ(fault("1,-1000e+397,0,0,0"), ", column 'a' (field 2): '-1000e+397'; expected a finite number");
  EXPECT_EQ(fault("1,1e9999999999999999999999,0,0,0"),
            ", column 'a' (field 2): '1e9999999999999999999999'; expected a finite number");
  EXPECT_EQ(fault("1,1e-50x,0,0,0"), ", column 'a' (field 2): '1e-50x'; expected a finite number");
  EXPECT_EQ(fault("2,0,0,0,0"), ", column 'label' (field 1): '2'; expected 0 or 1");
  EXPECT_EQ(fault("1,0,0,0\n"), ": 4 fields; its header has 5");
  EXPECT_EQ(fault("1,0,0,0,0,7\n"), ": 6 fields; its header has 5");
  EXPECT_EQ(fault(std::string((1 << 20) + 1, '1')), ": it has more than 1048576 bytes");
}

TEST(ClickReader, NumbersBelowTheSmallestFloatAreZeros) {
  const TemporaryFolder folder;
  const std::string zeros(400, '0');
  std::string text = "label,a\n";
  for (const std::string& number :
       {std::string("1e-50"), std::string("1e-400"), std::string("7e-46"), "0." + zeros + "1", "1" + zeros + "e-900",
        std::string("1e-9999999999999999999999")})
    text += "0," + number + "\n1,-" + number + "\n";
  text += "0,1e-45\n1,-1e-40\n1,3.4028235e38\n0,100" + zeros + "e-400\n";
  ClickReader reader({folder.write("x.csv", text)}, {.label = "label", .dense = {"a"}}, {.repeats = false});
  for (int i = 0; i < 6; ++i)
    for (const bool is_negative : {false, true}) {
      const float value = reader.read(1).dense.data<float>()[0];
      EXPECT_EQ(value, 0.0f) << "number " << i;
      EXPECT_EQ(std::signbit(value), is_negative) << "number " << i;
    }
  for (const float expected : {0x1p-149f, -1e-40f, 3.4028235e38f, 100.0f})
    EXPECT_EQ(reader.read(1).dense.data<float>()[0], expected);
}

TEST(ClickReader, PathsThatCannotBeLookedAtAreRefused) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(folder / "loop", folder / "loop");
  for (const std::string& path : {folder / "loop", folder / std::string(300, 'x')}) {
    ClickReader reader({path}, kColumns);
    EXPECT_THROW(reader.read(1), EnvironmentError) << path;
  }
}

TEST(ClickReader, HeadersMustHaveTheColumns) {
  const TemporaryFolder folder;
  const std::string file = folder.write("x.csv", "label,a,b,c\n");
  EXPECT_EQ(fault_of(file), "clicks: " + file + " has no column 'd'; its header is: label,a,b,c");
  EXPECT_EQ(fault_of(folder.write("x.csv", "label,a,b,c,d,a\n")), "clicks: " + file + " has the column 'a' twice");
  EXPECT_EQ(fault_of(folder.write("x.csv", "")),
            "clicks: " + file + " is empty; expected a header with the names of the columns");
  EXPECT_NE(fault_of(folder / "none.csv").find("none.csv"), std::string::npos);
  EXPECT_EQ(fault_of(file, {.label = "y", .dense = {"y"}}), "clicks: the column 'y' is named twice");
  EXPECT_EQ(fault_of(file, {.categories = {{"c", 0}}}),
            "clicks: the table of column 'c' has 0 rows; expected 1 or more");
}

// Both forms, and a compressed one, of the same 50 rows.
class ClickForms : public ::testing::TestWithParam<const char*> {
 protected:
  std::string written(int64_t first, int64_t count) const {
    const std::string form = GetParam(), path = folder_ / fmt::format("{}-{}{}", first, count, form);
    if (form == "npy") clicks_.write_npy(path, first, count);
    else clicks_.write_csv(path, first, count);
    if (form != ".csv.gz") return path;
    const std::string text = read_whole_file(path);
    const gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return path;
  }
  const TemporaryFolder folder_;
  const GeneratedClicks clicks_{criteo_columns({3, 1000, 1, 77})};
};
INSTANTIATE_TEST_SUITE_P(, ClickForms, ::testing::Values(".csv", "npy", ".csv.gz"));

TEST_P(ClickForms, RowsComeInOrderOverFilesAndEpochs) {
  const std::vector<std::string> paths{written(0, 20), written(20, 0), written(20, 1), written(21, 29)};
  ClickReader reader(paths, clicks_.columns());
  std::string text;
  for (int i = 0; i < 15; ++i) text += shown(reader.read(7));
  const std::string once = shown(clicks_.rows(0, 50));
  EXPECT_EQ(text, once + once + shown(clicks_.rows(0, 5)));
  EXPECT_EQ(reader.position().epoch, 2);
}

TEST_P(ClickForms, GoOnAtEveryPosition) {
  const std::vector<std::string> paths{written(0, 20), written(20, 0), written(20, 30)};
  ClickReader reader(paths, clicks_.columns());
  for (int64_t i = 0; i < 55; ++i) {
    const ClickPosition position = ClickPosition::of(reader.position().numbers());
    ClickReader other(paths, clicks_.columns());
    other.seek(position);
    if (i > 0) {
      EXPECT_EQ(other.position(), position);
    }
    ClickReader back(paths, clicks_.columns());
    back.read(60);
    back.seek(position);
    const std::string expected = shown(clicks_.rows(i % 50, 1));
    EXPECT_EQ(shown(other.read(1)), expected) << "row " << i;
    EXPECT_EQ(shown(back.read(1)), expected) << "row " << i;
    EXPECT_EQ(shown(reader.read(1)), expected) << "row " << i;
  }
}

TEST_P(ClickForms, RanksThatPassOverTheRowsOfOthersReadThemAll) {
  const std::vector<std::string> paths{written(0, 20), written(20, 30)};
  constexpr int64_t shards = 4, rows = 3, steps = 6;
  ClickReader one(paths, clicks_.columns());
  std::string expected;
  for (int64_t i = 0; i < shards * steps; ++i) expected += shown(one.read(rows));
  for (const int64_t ranks : {2, 3, 4}) {
    std::vector<std::unique_ptr<ClickReader>> readers;
    for (int64_t r = 0; r < ranks; ++r) readers.push_back(std::make_unique<ClickReader>(paths, clicks_.columns()));
    std::string text;
    for (int64_t i = 0; i < shards * steps; ++i)
      for (int64_t r = 0; r < ranks; ++r) {
        if (i % shards % ranks == r) text += shown(readers[static_cast<size_t>(r)]->read(rows));
        else EXPECT_EQ(readers[static_cast<size_t>(r)]->skip(rows), rows);
      }
    EXPECT_EQ(text, expected) << ranks << " ranks";
    for (const auto& reader : readers) EXPECT_EQ(reader->position(), one.position());
  }
}

TEST_P(ClickForms, EndWithoutRepeats) {
  ClickReader reader({written(0, 20)}, clicks_.columns(), {.repeats = false});
  EXPECT_EQ(reader.skip(15), 15);
  EXPECT_EQ(shown(reader.read(9)), shown(clicks_.rows(15, 5)));
  EXPECT_EQ(reader.skip(9), 0);
  ClickReader none({written(0, 0)}, clicks_.columns(), {.repeats = false});
  EXPECT_EQ(none.read(9).count(), 0);
  ClickReader never({written(0, 0), written(7, 0)}, clicks_.columns());
  EXPECT_THROW(never.read(1), EnvironmentError);
}

TEST_P(ClickForms, RefuseAPositionOfAnotherFile) {
  ClickReader reader({written(0, 20)}, clicks_.columns());
  reader.read(19);
  const ClickPosition late = reader.position();
  ClickReader shorter({written(0, 5)}, clicks_.columns());
  shorter.read(2);
  const ClickPosition before = shorter.position();
  ClickPosition inside = late;
  --inside.place.byte;
  inside.place.row = -1;
  for (const ClickPosition& wrong :
       {late, inside, ClickPosition{.file = 1}, ClickPosition{.file = -1}, ClickPosition{.epoch = -1}})
    EXPECT_THROW(shorter.seek(wrong), EnvironmentError);
  EXPECT_EQ(shorter.position(), before);
  EXPECT_EQ(shown(shorter.read(2)), shown(clicks_.rows(2, 2)));
  EXPECT_THROW(ClickPosition::of({1, 2}), UsageError);
}

TEST_P(ClickForms, RefuseAFileOfAnotherSizeOrHeader) {
  const std::string path = written(0, 20);
  ClickReader reader({path}, clicks_.columns());
  reader.read(3);
  const ClickPosition position = reader.position();
  // The longer file begins with the same rows, so that the position is one of its own.
  ClickReader longer({written(0, 21)}, clicks_.columns());
  EXPECT_THROW(longer.seek(position), EnvironmentError);
  ClickReader same({path}, clicks_.columns());
  same.seek(position);
  EXPECT_EQ(shown(same.read(1)), shown(clicks_.rows(3, 1)));
}

TEST(ClickReader, APositionUnderAnotherHeaderIsRefused) {
  const TemporaryFolder folder;
  ClickReader reader({folder.write("x.csv", "label,a,b,c,d\n1,2,3,4,5\n0,2,3,4,5\n")}, kColumns);
  reader.read(1);
  ClickReader swapped({folder.write("y.csv", "label,b,a,c,d\n1,2,3,4,5\n0,2,3,4,5\n")}, kColumns);
  EXPECT_THROW(swapped.seek(reader.position()), EnvironmentError);
}

TEST(ClickReader, APositionInsideALineIsRefused) {
  const TemporaryFolder folder;
  const GeneratedClicks clicks(criteo_columns({5}));
  clicks.write_csv(folder / "a.csv", 0, 9);
  ClickReader reader({folder / "a.csv"}, clicks.columns());
  reader.read(4);
  ClickPosition inside = reader.position();
  ++inside.place.byte;
  EXPECT_THROW(reader.seek(inside), EnvironmentError);
}

TEST(ClickReader, NpyFilesMustFit) {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const Tensor& t) { write_npy(folder / name, t); };
  const auto reset = [&] {
    write("label.npy", Tensor::of<uint8_t>({0, 1, 1}));
    write("dense.npy", Tensor::of<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
    write("categories.npy", Tensor::of<int32_t>({1, 2, 3, 4, 5, 6}, {3, 2}));
  };
  reset();
  ClickReader reader({folder.path()}, kColumns, {.repeats = false});
  EXPECT_EQ(shown(reader.read(9)), "0: 0x1p+0 0x1p+1 1 2\n1: 0x1.8p+1 0x1p+2 3 4\n1: 0x1.4p+2 0x1.8p+2 5 6\n");
  const auto fault = [&](const char* name, const Tensor& t) {
    reset();
    write(name, t);
    std::string text = fault_of(folder.path(), kColumns);
    for (size_t at; (at = text.find(folder.path())) != std::string::npos;) text.replace(at, folder.path().size(), "F");
    return text;
  };
  EXPECT_EQ(fault("label.npy", Tensor::of<uint8_t>({0, 2, 1})),
            "clicks: F/label.npy, row 1, column 'label': 2; expected 0 or 1");
  EXPECT_EQ(fault("categories.npy", Tensor::of<int64_t>({1, 2, 3, 4, -5, 6}, {3, 2})),
            "clicks: F/categories.npy, row 2, column 'c': -5; expected a whole number, 0 to 9");
  EXPECT_EQ(fault("dense.npy", Tensor::of<float>({1, 2, 3, 4, 5, INFINITY}, {3, 2})),
            "clicks: F/dense.npy, row 2, column 'b': inf; expected a finite number");
  EXPECT_EQ(fault("label.npy", Tensor::of<float>({0, 1})),
            "clicks: F has 2 rows in label.npy, 3 in dense.npy and 3 in categories.npy");
  EXPECT_EQ(fault("dense.npy", Tensor::of<float>({1, 2, 3}, {3, 1})),
            "clicks: F/dense.npy has the shape [3, 1]; expected [rows, 2] in C order");
  EXPECT_EQ(fault("dense.npy", Tensor::of<double>({1, 2, 3, 4, 5, 6}, {3, 2})),
            "clicks: F/dense.npy holds f64; expected f32 in the byte order of this machine");
  EXPECT_EQ(fault("label.npy", Tensor::of<float>({0, 1, 1}, {3, 1})),
            "clicks: F/label.npy has the shape [3, 1]; expected [rows] in C order");
}

TEST(ClickReader, MemoryDoesNotGrowWithTheFile) {
  const TemporaryFolder folder;
  const GeneratedClicks clicks(criteo_columns(std::vector<int64_t>(26, 1000)));
  clicks.write_csv(folder / "a.csv", 0, 1000);
  std::string text = read_whole_file(folder / "a.csv");
  const std::string body = text.substr(text.find('\n') + 1);
  while (text.size() < (size_t{96} << 20)) text += body;
  folder.write("a.csv", text);
  text = {};
  const auto resident = [] {  // pages now
    std::ifstream file("/proc/self/statm");
    int64_t size = 0, pages = 0;
    file >> size >> pages;
    return pages * 4096;
  };
  ClickReader reader({folder / "a.csv"}, clicks.columns());
  const int64_t before = resident();
  int64_t most = 0;
  for (int64_t rows = 0; reader.position().epoch == 0; rows += reader.skip(5000)) most = std::max(most, resident());
  EXPECT_LT(most - before, int64_t{40} << 20);
}

}  // namespace
}  // namespace tutti
