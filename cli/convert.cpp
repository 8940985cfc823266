#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "cli/quantize_flags.h"
#include "tutti/core/error.h"
#include "tutti/models/published_folder.h"
#include "tutti/models/published_gguf.h"
#include "tutti/runtime/json_writer.h"
#include "tutti/train/quantized_folder.h"

namespace tutti::cli {
namespace {

struct Flags {
  std::string source, target, format, dtype;
  double shard_gb = 5;
  train::QuantizeSettings quantize;
  bool json = false;
};

constexpr const char *kFolder = "hf", *kGguf = "gguf";

std::string megabytes(int64_t nbytes) { return fmt::format("{:.1f} MB", static_cast<double>(nbytes) / 1e6); }

models::WrittenModel write(const models::PublishedModel& model, const Flags& flags, bool is_gguf,
                           const models::WriteOptions& options) {
  if (flags.quantize.is_wanted()) {
    TUTTI_CHECK(!is_gguf,
                "convert: --quantize writes a folder, and {} is a GGUF file; name a folder, or take a type of GGUF "
                "files (--dtype q8_0)",
                flags.target);
    return train::write_quantized_folder(model, flags.source, flags.target, flags.quantize, options);
  }
  return is_gguf ? models::write_published_gguf(model, flags.target, options)
                 : models::write_published_folder(model, flags.target, options);
}

int run_convert(const Flags& flags) {
  const models::PublishedModel model(flags.source);
  const std::string from = model.file().format() == kGguf ? kGguf : kFolder;
  std::string to = flags.format;
  if (to.empty()) to = flags.target.ends_with(".gguf") ? kGguf : kFolder;
  models::WriteOptions options{.shard_nbytes = static_cast<int64_t>(flags.shard_gb * 1e9)};
  if (!flags.dtype.empty()) options.type = models::file_type_from_name(flags.dtype);
  const models::WrittenModel written = write(model, flags, to == kGguf, options);
  for (const std::string& note : written.notes) std::fprintf(stderr, "%s\n", note.c_str());
  if (flags.json) {
    JsonWriter line;
    line.object().member("source", flags.source).member("target", flags.target).member("model", model.config().name());
    line.member("from", from).member("to", to).member("tensors", written.tensors);
    line.member("parameters", written.parameters).member("source_nbytes", written.source_nbytes);
    line.member("target_nbytes", written.nbytes).member("files", written.files).key("notes").array();
    for (const std::string& note : written.notes) line.value(note);
    std::printf("%s\n", line.end().end().take().c_str());
  } else {
    std::printf("%s (%s, %s) -> %s (%s, %s, %lld file%s): %lld tensors, %lld parameters\n", flags.source.c_str(),
                from.c_str(), megabytes(written.source_nbytes).c_str(), flags.target.c_str(), to.c_str(),
                megabytes(written.nbytes).c_str(), static_cast<long long>(written.files), written.files == 1 ? "" : "s",
                static_cast<long long>(written.tensors), static_cast<long long>(written.parameters));
  }
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("convert", "Write a published model in another format: Hugging Face's or GGUF");
  verb->add_option("source", flags->source, "Folder of Hugging Face's with config.json, or a .gguf file")->required();
  verb->add_option("target", flags->target, "New folder or .gguf file; it must not exist")->required();
  verb->add_option("--format", flags->format,
                   "hf: a folder; gguf: a file. Without it, a name that ends with .gguf is one")
      ->check(CLI::IsMember({kFolder, kGguf}));
  verb->add_option(
          "--dtype", flags->dtype,
          "Of matrices; norms, biases and routers of GGUF files are f32. Without it they stay as they are, and "
          "blocks become f32 in a folder. Quantized types are those of GGUF files, and some matrices have more bits "
          "in them, as llama.cpp chooses")
      ->check(CLI::IsMember(models::file_type_names()));
  verb->add_option("--shard-size", flags->shard_gb, "Largest file of a folder, in GB")
      ->check(CLI::Range(1e-9, 1e6))
      ->capture_default_str();
  add_quantize_flags(*verb, flags->quantize);
  verb->add_flag("--json", flags->json,
                 "One object: source, target, model, from, to, tensors, parameters, source_nbytes, target_nbytes, "
                 "files, notes");
  verb->callback([flags, &action] { action = [flags] { return run_convert(*flags); }; });
}

}  // namespace tutti::cli
