#include "tutti/train/model_server.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/generate/serve/engine_backend.h"
#include "tutti/train/ready_model.h"
#include "tutti/train/sentence_backend.h"
#include "tutti/train/text_model.h"

namespace tutti::train {
namespace {

using generate::serve::ServedModel;

generate::EngineOptions engine_options(const TextModel& text, const ModelServerOptions& options) {
  TUTTI_CHECK(text.packaged == nullptr || options.cache_mbytes == ModelServerOptions().cache_mbytes,
              "serve: {} is a packaged model, whose cache was chosen when it was packaged (tutti package MODEL TARGET "
              "--context N --texts N); leave out --cache-mbytes {}",
              text.name, options.cache_mbytes);
  generate::EngineOptions engine = text.engine_options();
  engine.max_requests = options.max_requests;
  engine.batch_tokens = std::max(options.batch_tokens, options.max_requests);
  engine.interleaved_tokens = options.interleaved_tokens;
  engine.cache_bytes = options.cache_mbytes << 20;
  if (options.model.is_divided()) engine.led = options.model.group;
  return engine;
}

struct ServedText {
  ServedText(const std::filesystem::path& path, const ModelServerOptions& options)
      : text(open_text_model(path, options.model)),
        engine(*text.model, *text.tokenizer, engine_options(text, options)),
        backend(engine, options.queue, options.on_failure) {}

  ServedModel model(const SamplingSettings& sampling) const {
    return {.name = text.name,
            .tokenizer = text.tokenizer.get(),
            .chat = text.chat,
            .ends = text.ends,
            .suppressed = text.suppressed,
            .stops = text.stops,
            .defaults = sampling.over(text.sampling),
            .context = engine.context()};
  }

  TextModel text;
  generate::Engine engine;
  generate::serve::EngineBackend backend;
};

struct ServedSentences {
  ServedSentences(const std::filesystem::path& path, const QuantizeSettings& quantize)
      : sentences(path, quantize), backend(sentences) {}
  SentenceModel sentences;
  SentenceBackend backend;
};

}  // namespace

ModelServer::ModelServer(const std::filesystem::path& model, const ModelServerOptions& options)
    : name_(name_of_path(model)) {
  const auto serve = [&](generate::serve::Backend& backend, ServedModel served) {
    server_ = std::make_unique<generate::serve::HttpServer>(backend, std::move(served), options.http);
  };
  if (is_sentence_model(model)) {
    const TextModelOptions& o = options.model;
    TUTTI_CHECK(o.context == 0 && o.dtype == DType::f32 && !o.cache_dtype && !o.compile && !o.keep_blocks,
                "serve: {} is an encoder, which computes in f32, op by op, takes as many tokens as its files say, and "
                "caches nothing; leave out --context, --dtype, --kv-cache-dtype, --compile and --quantized",
                model.string());
    TUTTI_CHECK(!options.model.is_divided(), "serve: {} is an encoder, which one rank runs; leave out -n",
                model.string());
    const auto served = std::make_shared<ServedSentences>(model, o.quantize);
    served_ = served;
    failure_ = [] { return std::string(); };
    stop_backend_ = [] {};
    serve(served->backend, served_sentences(served->sentences));
  } else {
    const auto served = std::make_shared<ServedText>(model, options);
    served_ = served;
    failure_ = [&backend = served->backend] { return backend.failure(); };
    stop_backend_ = [&backend = served->backend] { backend.stop(); };
    serve(served->backend, served->model(options.sampling));
  }
}

ModelServer::~ModelServer() = default;

void ModelServer::stop() {
  server_->stop();
  stop_backend_();
}

void follow_server(const std::filesystem::path& model, const ModelServerOptions& options) {
  const TextModel text = open_text_model(model, options.model);
  generate::Engine(*text.model, *text.tokenizer, engine_options(text, options)).follow();
}

}  // namespace tutti::train
