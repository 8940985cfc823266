#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/checkpoint/reshard.h"
#include "tutti/train/checkpoint/tensor_list.h"

namespace tutti::cli {
namespace {

int run_ls(const std::string& path, bool digest, bool json) {
  for (const train::ListedTensor& t : train::list_tensors(path, digest)) {
    if (json) {
      nlohmann::json line = {
          {"name", t.name}, {"dtype", t.type}, {"shape", std::vector<int64_t>(t.sizes.begin(), t.sizes.end())}};
      if (digest) line["hash"] = t.digest;
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%s %s %s%s%s\n", t.name.c_str(), t.type.c_str(), to_string(t.sizes).c_str(), digest ? " " : "",
                  t.digest.c_str());
    }
  }
  return 0;
}

}  // namespace

void add_checkpoint(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("checkpoint", "Look into checkpoints, and write them in other files");
  verb->require_subcommand(1);
  struct Flags {
    std::string path, file;
    int64_t files = 1;
    bool digest = false, json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* ls = verb->add_subcommand("ls", "List the tensors: NAME DTYPE SHAPE [HASH]");
  ls->add_option("path", flags->path,
                 "Run folder (its newest checkpoint), step folder, or model: a .safetensors or .gguf file, or a folder "
                 "with one")
      ->required();
  ls->add_flag("--digest", flags->digest,
               "Add a hash of each whole tensor, equal for every layout that wrote it; of blocks, of their bytes");
  ls->add_flag("--json", flags->json, "One object per line: name, dtype, shape, hash");
  ls->callback([flags, &action] { action = [flags] { return run_ls(flags->path, flags->digest, flags->json); }; });
  CLI::App* check = verb->add_subcommand(
      "verify", "Check that every tensor has the bits it was saved with; exit status 0 when all have");
  check->add_option("path", flags->path, "Run folder (its newest checkpoint) or step folder")->required();
  check->add_flag("--json", flags->json, "One object: path, tensors, digest");
  check->callback([flags, &action] {
    action = [flags] {
      const train::Digests tensors = train::verify_checkpoint(flags->path);
      for (const auto& folder :
           {std::filesystem::path(flags->path), std::filesystem::path(flags->path) / "checkpoint"}) {
        for (const train::IncompleteCheckpoint& c : train::incomplete_checkpoints(folder))
          std::fprintf(stderr, "passed over %s: %s missing\n", c.path.c_str(),
                       fmt::format("{}", fmt::join(c.missing, " and ")).c_str());
      }
      if (flags->json)
        std::printf(
            "%s\n",
            nlohmann::json{{"path", flags->path}, {"tensors", tensors.size()}, {"digest", train::digest_of(tensors)}}
                .dump()
                .c_str());
      else
        std::printf("%s: %zu tensors, whole, digest %s\n", flags->path.c_str(), tensors.size(),
                    train::digest_of(tensors).c_str());
      return 0;
    };
  });
  CLI::App* reshard = verb->add_subcommand(
      "reshard",
      "Write a checkpoint in another number of files, which every run reads: in several beside an index, or in one");
  reshard->add_option("path", flags->path, "Run folder (its newest checkpoint) or step folder")->required();
  reshard->add_option("folder", flags->file, "New folder, e.g. step-500; it must not exist")->required();
  reshard
      ->add_option("--files", flags->files,
                   "Files of the model, and at most as many of the optimizer's state; 1: no index")
      ->required()
      ->check(CLI::Range(1, 1000000));
  reshard->add_flag("--json", flags->json, "One object: path, step, tensors, model_files, optimizer_files, digest");
  reshard->callback([flags, &action] {
    action = [flags] {
      const train::Resharded made = train::reshard_checkpoint(flags->path, flags->file, flags->files);
      const std::string digest = train::digest_of(made.digests);
      if (flags->json) {
        const nlohmann::ordered_json line = {{"path", flags->file},
                                             {"step", made.step},
                                             {"tensors", made.digests.size()},
                                             {"model_files", made.model_files},
                                             {"optimizer_files", made.optimizer_files},
                                             {"digest", digest}};
        std::printf("%s\n", line.dump().c_str());
      } else {
        std::printf("%s: step %lld, %zu tensors in %zu + %zu files, whole, digest %s\n", flags->file.c_str(),
                    static_cast<long long>(made.step), made.digests.size(), made.model_files, made.optimizer_files,
                    digest.c_str());
      }
      return 0;
    };
  });
  CLI::App* publish =
      verb->add_subcommand("export", "Write the model as one .safetensors file with the names of published models");
  publish->add_option("path", flags->path, "Run folder (its newest checkpoint) or step folder")->required();
  publish->add_option("file", flags->file, "File to write, e.g. model.safetensors")->required();
  publish->callback([flags, &action] {
    action = [flags] {
      train::export_model(flags->path, flags->file);
      return 0;
    };
  });
}

}  // namespace tutti::cli
