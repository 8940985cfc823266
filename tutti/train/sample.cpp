#include "tutti/train/sample.h"

#include <limits>

#include "tutti/core/error.h"
#include "tutti/generate/engine.h"
#include "tutti/io/token_stream.h"
#include "tutti/train/step/run_model.h"

namespace tutti::train {
SampleOptions sample_options(const Config& config) {
  return {.max_tokens = config.validation.sample_tokens,
          .seed = static_cast<uint64_t>(config.training.seed),
          .context = config.data.sequence_length,
          .forward = forward_options(config)};
}

void continue_tokens(models::LanguageModel& model, const Tokenizer& tokenizer, std::vector<int32_t>& tokens,
                     std::span<const int32_t> ends, const SampleOptions& options) {
  generate::Engine engine(model, tokenizer,
                          {.context = options.context,
                           .max_requests = 1,
                           .cache_bytes = std::numeric_limits<int64_t>::max(),
                           .forward = options.forward,
                           .mesh = options.mesh});
  generate::Request request{.prompt = tokens, .max_tokens = options.max_tokens, .slides = true};
  request.sampling = {.temperature = options.temperature, .top_k = options.top_k, .seed = options.seed};
  request.ends.assign(ends.begin(), ends.end());
  engine.submit(std::move(request));
  while (engine.has_work()) {
    for (const generate::Event& event : engine.step()) {
      if (event.token) tokens.push_back(event.token->id);
      TUTTI_CHECK(event.finish != generate::Finish::failed, "{}", event.error);
    }
  }
}

std::string sample_text(models::LanguageModel& model, const Tokenizer& tokenizer, const std::string& prompt,
                        const SampleOptions& options) {
  const DocumentFrame frame = document_frame(tokenizer);
  std::vector<int32_t> tokens = {frame.start};
  // The prompt is the whole text that the model continues, as a document is: its markers are meant.
  tokenizer.encode_into(prompt, tokens, {.parse_special = true});
  continue_tokens(model, tokenizer, tokens, std::span(&frame.end, 1), options);
  return tokenizer.decode(std::span(tokens).subspan(1), true);
}

}  // namespace tutti::train
