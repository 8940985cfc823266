#include "tutti/models/published_gguf.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tutti/core/error.h"
#include "tutti/io/rotary_rows.h"
#include "tutti/models/decoder_difference.h"
#include "tutti/models/family.h"
#include "tutti/models/gguf_decoder.h"
#include "tutti/models/gguf_formats.h"
#include "tutti/models/gguf_names.h"
#include "tutti/models/gguf_tensors.h"
#include "tutti/models/gguf_vocabulary_writer.h"
#include "tutti/models/stacked_experts.h"
#include "tutti/models/weight_source.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDivisors = "rope_freqs.weight";
constexpr int64_t kUnknownPositions = 2048;

const GgufArchitecture& architecture_of(const DecoderConfig& config) {
  const std::vector<GgufArchitecture>& rows = family_named(config.family).gguf;
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const GgufArchitecture& row) {
    return row.experts_beside || row.has_experts == config.has_experts();
  });
  TUTTI_CHECK(found != rows.end(), "{}: GGUF files have no architecture for the family {}{} here", config.name(),
              config.family, config.has_experts() ? " with experts" : "");
  return *found;
}

// A file that is to be written, for reading its description.
class PlannedFile final : public ModelFileReader {
 public:
  PlannedFile(std::vector<ModelTensor> entries, const ModelMetadata& metadata, const std::vector<float>& divisors)
      : entries_(std::move(entries)), metadata_(metadata), divisors_(divisors) {}
  const std::vector<ModelTensor>& entries() const override { return entries_; }
  const ModelMetadata& metadata() const override { return metadata_; }
  Tensor tensor(std::string_view) const override { return Tensor::of(divisors_); }  // nothing else is asked for

 private:
  std::vector<ModelTensor> entries_;
  ModelMetadata metadata_;
  std::vector<float> divisors_;
};

class GgufPlan {
 public:
  GgufPlan(const WeightSource& source, const WriteOptions& options)
      : source_(source),
        row_(architecture_of(source.config())),
        divisors_(gguf_divisors(source.config(), row_)),
        formats_(source.config(), options.type) {
    if (source.folder().empty()) raw_.emplace(source.model().path());
    if (!divisors_.empty()) {
      add({.name = kDivisors, .sizes = {std::ssize(divisors_)}, .dtype = DType::f32}, nullptr);
      nbytes_ = std::ssize(divisors_) * itemsize(DType::f32);
    }
    for (GgufTensor& tensor : gguf_tensors(source.config(), source.weights(), formats_)) {
      if (tensor.second != nullptr) second_.emplace(tensor.entry.name, tensor.second);
      nbytes_ += tensor.nbytes();
      add(std::move(tensor.entry), tensor.weight);
    }
    notes_ = formats_.notes();
    if (source.repeated_nbytes() > 0) notes_.push_back(note_of_repeated(source));
    describe(options.type);
  }

  const std::vector<ModelTensor>& entries() const { return entries_; }
  const std::vector<std::string>& notes() const { return notes_; }
  int64_t nbytes() const { return nbytes_; }
  const ModelMetadata& metadata() const { return metadata_; }

  void write(const ModelTensor& entry, ModelFileWriter& writer) const {
    const SourceWeight* weight = weights_.at(entry.name);
    if (weight == nullptr) return writer.write(entry.name, Tensor::of(divisors_));
    if (raw_ && raw_->contains(entry.name)) {  // in the layout that is written
      const ModelTensor& stored = raw_->entry(entry.name);
      if (stored.blocks == entry.blocks && stored.dtype == entry.dtype)
        return writer.write_bytes(entry.name, stored.bytes);
    }
    Tensor values = in_layout(*weight, source_.values(*weight));
    if (const auto second = second_.find(entry.name); second != second_.end())
      values = cat({values, source_.values(*second->second)}, 1);
    writer.write(entry.name, entry.blocks ? values : converted_weight(entry.name, values, entry.dtype));
  }

 private:
  void add(ModelTensor entry, const SourceWeight* weight) {
    weights_.emplace(entry.name, weight);
    entries_.push_back(std::move(entry));
  }

  void describe(const std::optional<FileType>& type) {
    const DecoderConfig& config = source_.config();
    const PublishedFacts facts = source_.facts();
    // Keys of a GGUF source stay: what is written below replaces those that are written here.
    if (raw_) metadata_ = raw_->metadata();
    metadata_.set("general.architecture", std::string(row_.name));
    metadata_.set("general.type", "model");
    if (!raw_) metadata_.set("general.name", source_.folder().filename().string());
    if (const std::optional<FileType> known = type || raw_ ? type : file_type_of(source_.main_dtype()))
      metadata_.set("general.file_type", static_cast<uint32_t>(*known));
    metadata_.set("general.quantization_version", uint32_t{2});  // of ggml's blocks
    write_gguf_decoder(config, row_, positions(facts), metadata_);
    const ModelFile planned("the file", "gguf", std::make_unique<PlannedFile>(entries_, metadata_, divisors_));
    check_described(config, read_gguf_decoder(planned, config.family, row_),
                    fmt::format("a GGUF file of the architecture {}", row_.name));
    if (!raw_) {
      const std::optional<std::string> missing =
          write_gguf_vocabulary(source_.folder(), config.vocab, facts, metadata_);
      if (missing) notes_.push_back("The file has no vocabulary: " + *missing);
    }
  }

  int64_t positions(const PublishedFacts& facts) {
    if (facts.positions) return *facts.positions;
    notes_.push_back(fmt::format("The source does not say how many positions the model was made for; the file says {}.",
                                 kUnknownPositions));
    return kUnknownPositions;
  }

  // Rows of queries and keys in the layout of the architecture, and what norms multiply by.
  Tensor in_layout(const SourceWeight& weight, const Tensor& values) const {
    const std::string_view name = weight.name;
    if (source_.config().zero_centered_norms && is_norm(name)) return tutti::add(cast(values, DType::f32), 1.0);
    const bool is_query = name.find(".q_proj.") != name.npos, is_key = name.find(".k_proj.") != name.npos;
    if (!row_.is_pair_layout || (!is_query && !is_key)) return values;
    const AttentionConfig& a = source_.config().layers.front().attention;  // all have the same
    const Tensor rows = to_contiguous(values), turned = Tensor::empty(rows.extents(), rows.dtype());
    const size_t nbytes = static_cast<size_t>(rows.nbytes());
    io::rotary_rows_to_pair_layout({static_cast<const std::byte*>(rows.raw_data()), nbytes},
                                   {static_cast<std::byte*>(turned.raw_data()), nbytes},
                                   is_query ? a.heads : a.kv_heads, rows.nbytes() / rows.extent(0));
    return turned;
  }

  const WeightSource& source_;
  const GgufArchitecture& row_;
  const std::vector<float> divisors_;
  GgufFormats formats_;
  std::optional<ModelFile> raw_;  // a GGUF source under its own names
  std::vector<ModelTensor> entries_;
  std::map<std::string, const SourceWeight*, std::less<>> weights_;  // by the name in the file; nullptr: the divisors
  std::map<std::string, const SourceWeight*, std::less<>> second_;   // whose rows follow in each expert
  ModelMetadata metadata_;
  std::vector<std::string> notes_;
  int64_t nbytes_ = 0;
};

}  // namespace

WrittenModel write_published_gguf(const PublishedModel& model, const fs::path& path, const WriteOptions& options) {
  TUTTI_CHECK(!fs::exists(fs::symlink_status(path)), "{} exists; name a new file", path.string());
  const WeightSource source(model);
  const GgufPlan plan(source, options);
  WrittenModel written{.tensors = std::ssize(plan.entries()),
                       .parameters = parameter_count(source.config()),
                       .source_nbytes = source.nbytes() + source.repeated_nbytes(),
                       .nbytes = plan.nbytes()};
  const auto writer = create_model_file(path, "gguf", plan.entries(), plan.metadata());
  for (const ModelTensor& entry : writer->entries()) plan.write(entry, *writer);
  writer->commit();
  written.notes = plan.notes();
  return written;
}

}  // namespace tutti::models
