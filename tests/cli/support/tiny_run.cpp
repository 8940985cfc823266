#include "tests/cli/support/tiny_run.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tutti/io/bpe_trainer.h"
#include "tutti/io/text_source.h"
#include "tutti/train/checkpoint/checkpoint.h"

namespace tutti::test {
namespace {

constexpr const char* kConfig = R"(
[model]
flavor = "tiny"
[data]
paths = ["data"]
tokenizer = "bpe:300"
sequence_length = 32
validation_fraction = 0.1
[training]
steps = 6
global_batch_tokens = 256
[optimizer]
lr = 3e-3
[lr_scheduler]
warmup_steps = 2
[validation]
every = 3
steps = 1
sample_tokens = 12
sample_prompt = "the old river"
[checkpoint]
every = 3
keep_latest = -1
)";

}  // namespace

void write_tiny_run(const Workplace& work) {
  work.write("run.toml", kConfig);
  for (const char* folder : {"data", "tokenizer"}) std::filesystem::create_directory(work.folder() / folder);
  const auto first = work.write("data/a.jsonl", synthetic_corpus(1, 30));
  work.write("data/b.jsonl", synthetic_corpus(2, 30));
  work.write("data/c.txt", "Plain text, that is one document, about a river and a stone.\n");

  BpeModel model = train_bpe(read_documents(std::vector<std::string>{first.string()}), {.vocab_size = 290});
  for (const char* marker : {"<|begin|>", "<|end|>"}) {
    const int32_t id = model.added_tokens.back().id + 1;
    model.added_tokens.push_back({id, marker, true});
  }
  work.write("tokenizer/tokenizer.json", io::tokenizer_json_of(model));
  work.write("tokenizer/tokenizer_config.json",
             R"({"bos_token": "<|begin|>", "eos_token": {"content": "<|end|>", "lstrip": false}})");
}

std::string outcome_of(const Workplace& work, const std::string& run) {
  std::string text;
  for (const train::DigestedTensor& tensor : train::digest_checkpoint(work.folder() / run))
    text += fmt::format("{} {}\n", tensor.name, tensor.digest);
  std::istringstream lines(work.read(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    for (const char* key : {"step", "loss_hex", "grad_norm_hex", "lr", "tokens_seen", "val_bits_per_byte"}) {
      if (record.contains(key)) text += fmt::format("{} {} ", key, record.at(key).dump());
    }
    text += "\n";
  }
  return text + work.read(run + "/sample.txt");
}

}  // namespace tutti::test
