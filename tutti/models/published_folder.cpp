#include "tutti/models/published_folder.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "tutti/core/error.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/gguf_vocabulary.h"
#include "tutti/io/model_file.h"
#include "tutti/io/sentence_piece_tokenizer.h"
#include "tutti/models/family.h"
#include "tutti/models/published_writer.h"
#include "tutti/models/stacked_experts.h"
#include "tutti/models/weight_source.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCopied[] = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "vocab.txt",
                                   "tokenizer.model",
                                   "chat_template.jinja",
                                   "chat_template.json",
                                   "generation_config.json"};

// A folder under a temporary name beside its place, which is removed unless it gets there.
class NewFolder {
 public:
  explicit NewFolder(fs::path place) : place_(std::move(place)) {
    if (!place_.has_filename()) place_ = place_.parent_path();
    TUTTI_CHECK(!fs::exists(fs::symlink_status(place_)), "{} exists; name a new folder", place_.string());
    path_ = place_.parent_path() / fmt::format(".{}.tmp-{}", place_.filename().string(), getpid());
    std::error_code error;
    const bool is_new = fs::create_directory(path_, error);
    TUTTI_CHECK_ENV(is_new, "cannot make the folder {}: {}", path_.string(),
                    error ? error.message() : "it exists, and may be deleted");
  }
  ~NewFolder() {
    std::error_code ignored;
    if (!is_done_) fs::remove_all(path_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const fs::path& path() const { return path_; }
  void commit() {
    TUTTI_CHECK(!fs::exists(fs::symlink_status(place_)), "{} has come into being meanwhile; name a new folder",
                place_.string());
    std::error_code error;
    fs::rename(path_, place_, error);
    TUTTI_CHECK_ENV(!error, "cannot rename {} to {}: {}", path_.string(), place_.string(), error.message());
    is_done_ = true;
  }

 private:
  fs::path place_, path_;
  bool is_done_ = false;
};

// A tensor of the folder.
struct Planned {
  ModelTensor entry;
  const SourceWeight* weight;
  int64_t expert = -1;                   // -1: the whole weight
  const SourceWeight* second = nullptr;  // whose rows follow in each expert
  Tensor codes = {};                     // what is written instead of the weight

  int64_t nbytes() const { return numel_of(entry.sizes) * itemsize(entry.dtype); }
};

// Whether bf16 or f16 holds all values of the norms, biases and routers, which come from f32.
bool fits_all_small(const WeightSource& source, DType dtype) {
  return std::all_of(source.weights().begin(), source.weights().end(), [&](const SourceWeight& weight) {
    if (!weight.is_f32_in_gguf()) return true;
    const Tensor values = to_contiguous(source.values(weight));
    const Tensor back = to_contiguous(cast(cast(values, dtype), values.dtype()));
    const auto* a = static_cast<const char*>(values.raw_data());
    return std::equal(a, a + values.nbytes(), static_cast<const char*>(back.raw_data()));
  });
}

class FolderPlan {
 public:
  FolderPlan(const WeightSource& source, const WriteOptions& options)
      : source_(source), family_(family_named(source.config().family)) {
    for (const auto& [name, tensor] : options.codes)
      codes_[std::string(nn::code_name_in(name).value().parameter)].emplace_back(name, tensor);
    if (options.type) {
      const FileTypeRow& row = row_of(*options.type);
      dtype_ = row_of(row.matrices).dtype;
      TUTTI_CHECK(!row.is_quantized(), "{} is no type of safetensors files; expected f32, bf16 or f16", row.name);
    }
    main_ = dtype_.value_or(source.main_dtype());
    narrows_ = !dtype_ && source.folder().empty() && main_ != DType::f32 && fits_all_small(source, main_);
    for (const SourceWeight& weight : source.weights()) add(weight);
    for (const auto& [name, codes] : codes_)
      TUTTI_CHECK(tensors_of_codes_.contains(name), "{}: the source has no weight of its own for the codes '{}'",
                  source.model().path(), codes.front().first);
  }
  DType main_dtype() const { return main_; }
  const std::vector<Planned>& tensors() const { return tensors_; }
  int64_t nbytes() const {
    int64_t sum = 0;
    for (const Planned& tensor : tensors_) sum += tensor.nbytes();
    return sum;
  }
  // The tensors of each file, consecutive ones of at most `most` bytes together.
  std::vector<std::vector<const Planned*>> files(int64_t most) const {
    std::vector<std::vector<const Planned*>> files(1);
    int64_t sum = 0;
    for (const Planned& tensor : tensors_) {
      if (!files.back().empty() && sum + tensor.nbytes() > most) files.emplace_back(), sum = 0;
      files.back().push_back(&tensor), sum += tensor.nbytes();
    }
    return files;
  }

 private:
  void add(const SourceWeight& weight) {
    if (const auto codes = codes_.find(weight.name); codes != codes_.end()) {
      tensors_of_codes_.insert(weight.name);
      for (const auto& [name, tensor] : codes->second)
        tensors_.push_back(
            {.entry = {.name = published_name(family_, name), .sizes = tensor.extents(), .dtype = tensor.dtype()},
             .weight = &weight,
             .codes = tensor});
      return;
    }
    DType dtype = dtype_.value_or(weight.dtype);
    if (narrows_ && weight.is_f32_in_gguf()) dtype = main_;
    if (weight.holds_experts() && family_.stacks_experts) return add_stacked(weight, dtype);
    if (!weight.holds_experts())
      return tensors_.push_back(
          {{.name = published_name(family_, weight.name), .sizes = weight.sizes, .dtype = dtype}, &weight});
    for (int64_t e = 0; e < weight.sizes[0]; ++e)
      tensors_.push_back({{.name = published_name(family_, nn::published_expert_name(weight.name, e)),
                           .sizes = {weight.sizes[1], weight.sizes[2]},
                           .dtype = dtype},
                          &weight,
                          e});
  }

  // w1 and w3 are one tensor, which stands in the place of the first.
  void add_stacked(const SourceWeight& weight, DType dtype) {
    const std::string layer = weight.name.substr(0, weight.name.rfind(".experts."));
    const bool is_down = weight.name.ends_with(".w2");
    if (!is_down && !weight.name.ends_with(".w1")) return;
    Planned planned{{.sizes = weight.sizes, .dtype = dtype}, &weight};
    planned.entry.name = published_name(family_, fmt::format("{}{}", layer, is_down ? kStackedDown : kStackedGateUp));
    if (!is_down) planned.second = &source_.weight(layer + ".experts.w3"), planned.entry.sizes[1] *= 2;
    tensors_.push_back(std::move(planned));
  }

  const WeightSource& source_;
  const ModelFamily& family_;
  std::optional<DType> dtype_;
  DType main_ = DType::f32;
  bool narrows_ = false;
  std::map<std::string, nn::StateDict> codes_;  // by the weight that they stand for
  std::set<std::string> tensors_of_codes_;      // those of these weights that the source has
  std::vector<Planned> tensors_;
};

void write_file(const WeightSource& source, const std::vector<const Planned*>& tensors, const fs::path& path) {
  std::map<std::string_view, const Planned*> by_name;
  std::vector<ModelTensor> entries;
  for (const Planned* tensor : tensors) {
    by_name.emplace(tensor->entry.name, tensor);
    entries.push_back(tensor->entry);
  }
  ModelMetadata metadata;
  metadata.set("format", "pt");  // transformers refuses files without it
  const auto writer = create_model_file(path, "safetensors", std::move(entries), std::move(metadata));
  for (const ModelTensor& entry : writer->entries()) {
    const Planned& tensor = *by_name.at(entry.name);
    if (tensor.codes.defined()) {
      writer->write(entry.name, to_contiguous(tensor.codes));
      continue;
    }
    Tensor values =
        tensor.expert < 0 ? source.values(*tensor.weight) : source.values_of_expert(*tensor.weight, tensor.expert);
    if (tensor.second != nullptr) values = cat({values, source.values(*tensor.second)}, 1);
    writer->write(entry.name, converted_weight(entry.name, values, entry.dtype));
  }
  writer->commit();
}

int64_t write_files(const WeightSource& source, const FolderPlan& plan, int64_t most, const fs::path& folder) {
  const auto files = plan.files(most);
  if (files.size() == 1) return write_file(source, files[0], folder / "model.safetensors"), 1;
  JsonWriter index(2);
  index.object().key("metadata").object().member("total_size", plan.nbytes()).end().key("weight_map").object();
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    write_file(source, files[i], folder / name);
    for (const Planned* tensor : files[i]) index.member(tensor->entry.name, name);
  }
  write_file_atomically((folder / "model.safetensors.index.json").string(), index.end().end().take() + "\n");
  return std::ssize(files);
}

// Writes the vocabulary of a GGUF file as tokenizer.json. Returns why there is none, as a sentence.
std::optional<std::string> write_tokenizer_of_gguf(const ModelFile& file, const fs::path& folder) {
  if (!file.metadata().contains("tokenizer.ggml.tokens")) return "The folder has no tokenizer, as the source has none.";
  try {
    const auto tokenizer = tokenizer_of_gguf(read_gguf_vocabulary(file.metadata()), file.path());
    if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(tokenizer.get())) bpe->save_with_markers(folder.string());
    else if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(tokenizer.get()))
      pieces->save_with_markers(folder.string());
    else return fmt::format("The folder has no tokenizer: {} is not written.", tokenizer->name());
    if (const auto chat = file.metadata().find("tokenizer.chat_template"))
      write_file_atomically((folder / "chat_template.jinja").string(), chat->text());
  } catch (const UsageError& error) {
    return fmt::format("The folder has no tokenizer: {}.", error.what());
  }
  return std::nullopt;
}

// Writes the tokenizer of the model beside it, or notes that there is none.
void write_beside(const PublishedModel& model, const WeightSource& source, const fs::path& folder,
                  WrittenModel& written) {
  if (source.folder().empty()) {
    if (auto note = write_tokenizer_of_gguf(model.file(), folder)) written.notes.push_back(std::move(*note));
    return;
  }
  bool has_tokenizer = false;
  for (const char* name : kCopied) {
    const fs::path file = source.folder() / name;
    if (!fs::is_regular_file(file)) continue;
    fs::copy_file(file, folder / name);
    const std::string_view copied = name;
    has_tokenizer = has_tokenizer || copied == "tokenizer.json" || copied == "vocab.json" ||
                    copied == "tokenizer.model" || copied == "vocab.txt";
  }
  if (!has_tokenizer) written.notes.push_back("The folder has no tokenizer, as the source has none.");
}

}  // namespace

WrittenModel write_published_folder(const PublishedModel& model, const fs::path& folder, const WriteOptions& options) {
  TUTTI_CHECK(!folder.empty(), "the model has no name to be written under; name a new folder");
  TUTTI_CHECK(options.shard_nbytes > 0, "files of at most {} bytes; expected at least 1", options.shard_nbytes);
  const WeightSource source(model);
  const FolderPlan plan(source, options);
  PublishedFacts facts = source.facts();
  if (options.quantization) facts.quantization = name_of(*options.quantization);
  const std::string config = published_config_json(source.config(), plan.main_dtype(), facts);
  NewFolder made(folder);
  write_file_atomically((made.path() / "config.json").string(), config);
  WrittenModel written{.tensors = std::ssize(plan.tensors()),
                       .parameters = parameter_count(source.config()),
                       .source_nbytes = source.nbytes() + source.repeated_nbytes(),
                       .nbytes = plan.nbytes()};
  if (source.repeated_nbytes() > 0) written.notes.push_back(note_of_repeated(source));
  write_beside(model, source, made.path(), written);
  written.files = write_files(source, plan, options.shard_nbytes, made.path());
  made.commit();
  return written;
}

}  // namespace tutti::models
