#include "tutti/train/generate.h"

#include <limits>

#include "tutti/core/error.h"
#include "tutti/generate/serve/text_stream.h"
#include "tutti/train/ready_model.h"
#include "tutti/train/text_model.h"

namespace tutti::train {
namespace {

struct Continued {
  std::vector<int32_t> tokens;
  std::optional<std::string> stopped;  // the generated text before a stop string
};

Continued continue_text(TextModel& text, generate::Request request, const std::vector<std::string>& stops) {
  generate::EngineOptions options = text.engine_options();
  options.max_requests = 1;
  options.cache_bytes = std::numeric_limits<int64_t>::max();  // as much as the one text needs
  generate::Engine engine(*text.model, *text.tokenizer, options);
  Continued result{.tokens = request.prompt};
  generate::serve::TextStream stream(*text.tokenizer, stops);
  std::string generated;
  const generate::RequestId id = engine.submit(std::move(request));
  while (engine.has_work()) {
    for (const generate::Event& event : engine.step()) {
      TUTTI_CHECK(event.finish != generate::Finish::failed, "{}", event.error);
      if (!event.token || result.stopped) continue;
      result.tokens.push_back(event.token->id);
      if (stops.empty()) continue;
      generated += stream.feed(event.token->id);
      if (!stream.is_stopped()) continue;
      result.stopped = generated;
      engine.cancel(id);
    }
  }
  return result;
}

}  // namespace

std::string generate_text(const std::filesystem::path& path, const GenerateOptions& options) {
  constexpr int64_t most_tokens = 1 << 20;
  const int64_t asked = options.max_tokens.value_or(0);
  TUTTI_CHECK(asked >= 0 && asked <= most_tokens, "generate: {} tokens; expected 0 to {}", asked, most_tokens);
  const bool published = is_published(path);
  TUTTI_CHECK(options.prompt.has_value() || !published,
              "generate: {} is a published model; give it a text to continue by --prompt", path.string());
  TextModelOptions model = options.model;
  if (published && model.context == 0)
    model.context = std::max(kUsualContext, std::ssize(*options.prompt) + 64 + asked);  // a token has a byte at least
  TextModel text = open_text_model(path, model);
  generate::Request request{.prompt = text.encode(options.prompt.value_or(text.prompt)),
                            .sampling = options.sampling.over(text.sampling),
                            .max_tokens = options.max_tokens.value_or(text.max_tokens),
                            .ends = text.ends,
                            .suppressed = text.suppressed,
                            .slides = text.slides};
  std::vector<std::string> stops = text.stops;
  stops.insert(stops.end(), options.stops.begin(), options.stops.end());
  const std::vector<int32_t> prompt = request.prompt;
  const Continued continued = continue_text(text, std::move(request), stops);
  return continued.stopped ? text.decode(prompt) + *continued.stopped : text.decode(continued.tokens);
}

}  // namespace tutti::train
