#include "tutti/train/checkpoint/tensor_list.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/io/model_file.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/train/checkpoint/digest.h"

namespace tutti::train {
namespace {

using tutti::testing::TemporaryFolder;

const std::string kGguf = TUTTI_SOURCE_DIR "/tests/golden/gguf/every_type.gguf";

TEST(TensorList, ListsAGgufFileWithTheFormatsOfItsBlocks) {
  const std::vector<ListedTensor> list = list_tensors(kGguf, false);
  ASSERT_EQ(list.size(), 17U);
  EXPECT_EQ(list[0].name, "blocks.IQ4_NL");
  EXPECT_EQ(list[0].type, "IQ4_NL");
  EXPECT_EQ(list[5].name, "blocks.Q5_1");
  EXPECT_EQ(list[5].sizes, (Extents{2, 64}));
  EXPECT_EQ(list[9].type, "bf16");
  for (const ListedTensor& t : list) EXPECT_EQ(t.digest, "") << t.name;
}

TEST(TensorList, DigestsOfNumbersAreThoseOfAnyFormatAndDigestsOfBlocksDiffer) {
  const std::vector<ListedTensor> list = list_tensors(kGguf, true);
  const ModelFile decoded(TUTTI_SOURCE_DIR "/tests/golden/gguf/decoded.safetensors");
  std::set<std::string> digests;
  for (const ListedTensor& t : list) {
    EXPECT_EQ(t.digest.size(), 16U);
    digests.insert(t.digest);
    if (!decoded.contains(t.name)) continue;
    const bool is_plain = t.name.starts_with("plain.");
    EXPECT_EQ(t.digest == tensor_digest(decoded.tensor(t.name)), is_plain) << t.name;
  }
  EXPECT_EQ(digests.size(), list.size());
  const ModelFile file(kGguf);
  const ModelTensor& entry = file.entry("blocks.Q8_0");
  EXPECT_EQ(blocks_digest(*entry.blocks, entry.sizes, entry.bytes), list[8].digest);
}

TEST(TensorList, ListsFilesAndFoldersOfPublishedModels) {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, Tensor>> tensors = {{"b", Tensor::of<float>({1, 2})},
                                                               {"a", Tensor::of<float>({3})}};
  write_safetensors_shards(folder / "model.safetensors", tensors, {}, 2);
  for (const std::string& path : {folder.path(), folder / "model.safetensors.index.json"}) {
    const std::vector<ListedTensor> list = list_tensors(path, true);
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0].name, "a");
    EXPECT_EQ(list[0].type, "f32");
    EXPECT_EQ(list[1].digest, tensor_digest(tensors[0].second));
  }
}

TEST(TensorList, AFolderWithoutEitherIsNoCheckpoint) {
  const TemporaryFolder folder;
  EXPECT_EQ(message_of([&] { list_tensors(folder.path(), false); }),
            folder.path() + " holds no checkpoint: neither model.safetensors nor step-N folders");
}

}  // namespace
}  // namespace tutti::train
