#include "tutti/train/quantized_folder.h"

#include <memory>

#include "tutti/models/decoder.h"
#include "tutti/models/published_folder.h"
#include "tutti/models/weight_source.h"
#include "tutti/train/quantize_model.h"
#include "tutti/train/ready_model.h"

namespace tutti::train {
namespace {

constexpr int64_t kPositions = 1024;  // of the texts of calibration

}  // namespace

models::WrittenModel write_quantized_folder(const models::PublishedModel& model, const std::filesystem::path& source,
                                            const std::filesystem::path& folder, const QuantizeSettings& settings,
                                            models::WriteOptions options) {
  check(settings);
  const std::unique_ptr<Tokenizer> tokenizer =
      settings.calibration.empty() ? nullptr : open_published_tokenizer(source);
  // Its description ties a head that repeats the embedding, as the folder will.
  models::Decoder decoder(models::WeightSource(model).config(), kPositions);
  model.load(decoder, {.freeze = true});
  decoder.to(DType::f32);
  decoder.eval();
  options.quantization = quantize_model(decoder, tokenizer.get(), settings, kPositions).kind;
  options.codes = nn::code_entries(decoder);
  return models::write_published_folder(model, folder, options);
}

}  // namespace tutti::train
