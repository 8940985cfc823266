#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "tutti/io/bpe_trainer.h"
#include "tutti/io/text_source.h"
#include "tutti/io/tokenizer_source.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti::cli {

void add_tokenizer(CLI::App& app, Action& action) {
  struct Flags {
    std::vector<std::string> data;
    TextSourceOptions reading;
    int64_t vocab = 2048;
    std::string output = "tokenizer.json";
    std::string spec;
    std::string text;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("tokenizer", "Learn and try tokenizers");
  verb->require_subcommand(1);
  CLI::App* train = verb->add_subcommand("train", "Learn byte-level BPE from text and save it as tokenizer.json");
  train->add_option("data", flags->data, "Files, folders, globs, .jsonl, gzip, dictzip")->required();
  train->add_option("--vocab-size", flags->vocab, "Tokens to end with, special tokens included")
      ->check(CLI::Range(258, 1 << 20))
      ->capture_default_str();
  train->add_option("-o,--output", flags->output, "File to write")->capture_default_str();
  train
      ->add_option("--text-field", flags->reading.text_field,
                   "The key under which the lines of .jsonl files have their text")
      ->capture_default_str();
  train->add_flag("--read-binary", flags->reading.reads_binary,
                  "Also learn from files that hold no text, byte by byte");
  train->callback([flags, &action] {
    action = [flags] {
      const TextDocuments text = read_counted_documents(flags->data, flags->reading);
      std::fprintf(stderr, "%s\n", describe(text.counts).c_str());
      const BpeModel model = train_bpe(text.documents, {.vocab_size = flags->vocab});
      write_file_atomically(flags->output, io::tokenizer_json_of(model));
      std::fprintf(stderr, "wrote %s\n", flags->output.c_str());
      return 0;
    };
  });
  CLI::App* encode = verb->add_subcommand("encode", "Print the token ids of a text");
  encode->add_option("tokenizer", flags->spec, "byte, or the path of a tokenizer.json")->required();
  encode->add_option("text", flags->text, "Text to encode")->required();
  encode->callback([flags, &action] {
    action = [flags] {
      const auto tokenizer = open_tokenizer(flags->spec, {}, "");
      for (const int32_t id : tokenizer->encode(flags->text)) std::printf("%d ", id);
      std::printf("\n");
      return 0;
    };
  });
}

}  // namespace tutti::cli
