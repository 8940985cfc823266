#include "tutti/train/checkpoint/tensor_list.h"

#include <algorithm>

#include "tutti/io/model_file.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/models/package_file.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/checkpoint/checkpoint_folder.h"
#include "tutti/train/checkpoint/digest.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

void append_tensors(const ModelFile& file, bool with_digests, std::vector<ListedTensor>& list) {
  for (const ModelTensor& t : file.entries()) {
    std::string digest;
    if (with_digests)
      digest = t.blocks ? blocks_digest(*t.blocks, t.sizes, t.bytes) : tensor_digest(file.tensor(t.name));
    list.push_back({t.name, std::string(t.type_name()), t.sizes, std::move(digest)});
  }
}

bool is_checkpoint(const fs::path& path) {
  return fs::exists(path / kStateFile) || fs::exists(safetensors_place(path / kOptimizerFile)) || !holds_model(path);
}

}  // namespace

std::vector<ListedTensor> list_tensors(const fs::path& path, bool with_digests) {
  models::refuse_package(path);
  std::vector<ListedTensor> list;
  if (is_checkpoint(path)) {
    const fs::path folder = resolve_checkpoint(path);
    for (const char* name : {kModelFile, kOptimizerFile}) {
      if (fs::exists(safetensors_place(folder / name))) append_tensors(ModelFile(folder / name), with_digests, list);
    }
  } else {
    append_tensors(ModelFile(path), with_digests, list);
  }
  std::sort(list.begin(), list.end(), [](const ListedTensor& a, const ListedTensor& b) { return a.name < b.name; });
  return list;
}

}  // namespace tutti::train
