#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "tutti/core/error.h"
#include "tutti/io/bpe_trainer.h"
#include "tutti/io/text_source.h"
#include "tutti/io/tokenizer_source.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::cli {
namespace {

std::string standard_input() {
  std::string text;
  char buffer[1 << 16];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, stdin)) text.append(buffer, count);
  TUTTI_CHECK_ENV(std::ferror(stdin) == 0, "cannot read standard input: {}", std::strerror(errno));
  return text;
}

// Numbers with white space or commas between.
void append_ids(std::string_view text, std::vector<int32_t>& ids) {
  constexpr std::string_view kBetween = ", \t\r\n";
  for (size_t begin = text.find_first_not_of(kBetween); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    int32_t id = 0;
    const auto [stopped, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    TUTTI_CHECK(error == std::errc() && stopped == word.data() + word.size() && id >= 0,
                "{} is no token id; expected whole numbers from 0 with spaces or commas between",
                json_quoted(word.substr(0, 60)));
    ids.push_back(id);
    begin = text.find_first_not_of(kBetween, end);
  }
}

constexpr const char* kTokenizerHelp = "byte, or the path of a tokenizer.json or of its folder";

void add_encode(CLI::App& verb, Action& action) {
  struct Flags {
    std::string spec;
    std::optional<std::string> text;
    EncodeOptions options;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* encode = verb.add_subcommand("encode", "Print the token ids of a text");
  encode->add_option("tokenizer", flags->spec, kTokenizerHelp)->required();
  encode->add_option("text", flags->text, "Text to encode; else standard input, byte for byte");
  encode->add_flag("--special", flags->options.parse_special,
                   "Take names of special tokens in the text, such as <|endoftext|>, for these tokens");
  encode->add_flag("--add-special-tokens,--bos", flags->options.add_special_tokens,
                   "Frame the text by the ids that the file names, such as BOS, or [CLS] and [SEP]");
  encode->callback([flags, &action] {
    action = [flags] {
      const auto tokenizer = open_tokenizer(flags->spec, {}, "");
      const std::string text = flags->text ? *flags->text : standard_input();
      for (const int32_t id : tokenizer->encode(text, flags->options)) std::printf("%d ", id);
      std::printf("\n");
      return 0;
    };
  });
}

void add_decode(CLI::App& verb, Action& action) {
  struct Flags {
    std::string spec;
    std::vector<std::string> ids;
    bool skips_special = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* decode = verb.add_subcommand("decode", "Print the text of token ids");
  decode->add_option("tokenizer", flags->spec, kTokenizerHelp)->required();
  decode->add_option("ids", flags->ids, "Ids, with spaces or commas between; else those of standard input");
  decode->add_flag("--skip-special", flags->skips_special, "Leave out special tokens");
  decode->callback([flags, &action] {
    action = [flags] {
      const auto tokenizer = open_tokenizer(flags->spec, {}, "");
      std::vector<int32_t> ids;
      if (flags->ids.empty()) append_ids(standard_input(), ids);
      for (const std::string& word : flags->ids) append_ids(word, ids);
      const std::string text = tokenizer->decode(ids, flags->skips_special) + "\n";
      std::fwrite(text.data(), 1, text.size(), stdout);  // it may hold any byte
      return 0;
    };
  });
}

}  // namespace

void add_tokenizer(CLI::App& app, Action& action) {
  struct Flags {
    std::vector<std::string> data;
    TextSourceOptions reading;
    int64_t vocab = 2048;
    std::string output = "tokenizer.json";
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
  add_encode(*verb, action);
  add_decode(*verb, action);
}

}  // namespace tutti::cli
