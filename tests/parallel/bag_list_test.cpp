// Bags on their way between ranks: written and read again, and bytes that no rank should have sent.
#include "tutti/parallel/bag_list.h"

#include <gtest/gtest.h>

#include "tutti/core/philox.h"
#include "tutti/ops/table_batch.h"

namespace tutti::parallel {
namespace {

// Two features of two bags each, of tables 2 and 0.
BagList two_features(bool weighted) {
  TableBatch batch{.indices = Tensor::of<int64_t>({5, 6, 7, 1, 0}), .offsets = Tensor::of<int64_t>({0, 2, 3, 3, 5})};
  batch.features = {2, 0};
  if (weighted) batch.per_sample_weights = Tensor::of<float>({1, 2, 3, 4, 5});
  const CheckedBatch checked = checked_batch("test", batch, {2, 9, 8}, {4, 4, 4}, {});
  BagList list;
  list.add(checked, 0, 1, 0);
  list.add(checked, 0, 0, 2);
  return list;
}

std::string written(const BagList& list) {
  ParcelWriter writer;
  list.write(writer);
  return std::string(bytes_of(writer.take()));
}

TEST(BagList, IsReadAsItWasWritten) {
  for (const bool weighted : {false, true}) {
    const std::string bytes = written(two_features(weighted));
    ParcelReader reader("test", bytes);
    const BagList list = BagList::read(reader, 3);
    EXPECT_TRUE(reader.is_empty());
    EXPECT_EQ(list.lengths, (std::vector<int64_t>{0, 2, 2, 1}));
    EXPECT_EQ(list.indices, (std::vector<int64_t>{1, 0, 5, 6, 7}));
    EXPECT_EQ(list.weights, weighted ? (std::vector<float>{4, 5, 1, 2, 3}) : std::vector<float>());
    const TableBatch batch = list.batch(1, 2);
    EXPECT_EQ(batch.features, std::vector<int64_t>{2});
    EXPECT_EQ(batch.bags, std::vector<int64_t>{2});
    EXPECT_EQ(to_string(batch.offsets), to_string(Tensor::of<int64_t>({0, 2, 3})));
    EXPECT_EQ(to_string(batch.indices), to_string(Tensor::of<int64_t>({5, 6, 7})));
    EXPECT_EQ(batch.per_sample_weights.defined(), weighted);
  }
}

TEST(BagList, BytesThatWereCutOrChangedAreAnErrorOrAList) {
  const std::string whole = written(two_features(true));
  const auto read = [](std::string bytes) {
    ParcelReader reader("test", bytes);
    const BagList list = BagList::read(reader, 3);
    if (!list.pieces.empty()) list.batch(0, list.pieces.size());
  };
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_THROW(read(whole.substr(0, n)), EnvironmentError) << n << " bytes";
  size_t errors = 0;
  const std::array<uint32_t, 2> key = philox_key(3);
  for (uint32_t i = 0; i < 20000; ++i) {
    const std::array<uint32_t, 4> drawn = philox4x32({i, 0, 0, 0}, key);
    std::string bytes = whole;
    bytes[drawn[0] % bytes.size()] = static_cast<char>(drawn[1] % 3 == 0 ? 255 : drawn[1]);
    if (drawn[2] % 2 == 0) bytes[drawn[2] % bytes.size()] = static_cast<char>(drawn[3]);
    try {
      read(bytes);
    } catch (const EnvironmentError&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 1000u);
}

}  // namespace
}  // namespace tutti::parallel
