#include "tutti/train/data/run_tokenizer.h"

#include "tutti/core/error.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/byte_tokenizer.h"
#include "tutti/io/published_tokenizer.h"
#include "tutti/io/sentence_piece_tokenizer.h"
#include "tutti/io/tokenizer_difference.h"
#include "tutti/io/tokenizer_source.h"
#include "tutti/io/word_piece_tokenizer.h"
#include "tutti/runtime/held_signal.h"
#include "tutti/train/config/config_fields.h"

namespace tutti::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kMarkerFile = "tokenizer_config.json";

std::string marker_text(const std::optional<int32_t>& id) { return id ? fmt::format("token {}", *id) : "none"; }

// The tokenizer that the run folder holds, whatever it is.
std::unique_ptr<Tokenizer> load(const fs::path& run, const TokenizerInput& saved) {
  if (saved.name == ByteTokenizer().name()) return std::make_unique<ByteTokenizer>();
  const fs::path file = run / kTokenizerFile;
  TUTTI_CHECK_ENV(fs::exists(file),
                  "{} is missing: the run was trained with the tokenizer {} that lay there; put it back", file.string(),
                  saved.name);
  return load_tokenizer(file.string());
}

}  // namespace

void save_run_tokenizer(const fs::path& run, const Tokenizer& tokenizer) {
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(&tokenizer)) return bpe->save_with_markers(run.string());
  if (const auto* words = dynamic_cast<const WordPieceTokenizer*>(&tokenizer))
    return words->save_with_markers(run.string());
  if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer))
    return pieces->save_with_markers(run.string());
  for (const char* name : {kTokenizerFile, kMarkerFile}) fs::remove(run / name);
}

void copy_run_tokenizer(const fs::path& from, const fs::path& to) {
  const HeldSignal held(SIGXFSZ);
  for (const char* name : {kTokenizerFile, kMarkerFile}) {
    std::error_code failed;
    if (!fs::exists(from / name)) continue;
    fs::copy_file(from / name, to / name, failed);
    TUTTI_CHECK_ENV(!failed, "cannot copy {} to {}: {}", (from / name).string(), (to / name).string(),
                    failed.message());
  }
}

std::unique_ptr<Tokenizer> open_run_tokenizer(const fs::path& run, const TokenizerInput& saved) {
  std::unique_ptr<Tokenizer> own = load(run, saved);
  const std::string place = (run / kTokenizerFile).string();
  const auto check_marker = [&](const char* what, const std::optional<int32_t>& then,
                                const std::optional<int32_t>& now) {
    TUTTI_CHECK_ENV(then == now,
                    "{} is not what the run was trained with: {} was {} and is {}; put it back, and {} beside it",
                    place, what, marker_text(then), marker_text(now), kMarkerFile);
  };
  check_marker("BOS", saved.bos, own->bos_id());
  check_marker("EOS", saved.eos, own->eos_id());
  TUTTI_CHECK_ENV(own->fingerprint() == saved.fingerprint,
                  "{} is not what the run was trained with ({}, hash {:016x}): it is {}, hash {:016x}; put it back",
                  place, saved.name, saved.fingerprint, own->name(), own->fingerprint());
  return own;
}

std::unique_ptr<Tokenizer> open_packaged_run_tokenizer(const fs::path& folder, const std::string& spec) {
  const fs::path file = folder / kTokenizerFile;
  TUTTI_CHECK_ENV(fs::exists(file) || !names_tokenizer_file(spec),
                  "{} is missing, the tokenizer of the packaged run; put it back, or package the run again",
                  file.string());
  if (!fs::exists(file)) return std::make_unique<ByteTokenizer>();
  return load_tokenizer(file.string());
}

SpecChange compare_tokenizer_spec(const Tokenizer& own, const TokenizerInput& saved, const std::string& spec) {
  const bool same_spec = describe(own, spec).spec == saved.spec;
  if (!names_tokenizer_file(spec)) {
    if (same_spec) return {};
    return {.forbidden = fmt::format("data.tokenizer: {} -> {}", to_toml(saved.spec), to_toml(spec)),
            .changed = {},
            .told = {}};
  }
  const fs::path file = fs::is_directory(spec) ? fs::path(spec) / kTokenizerFile : fs::path(spec);
  if (same_spec && !fs::exists(file))
    return {
        .forbidden = {}, .changed = {}, .told = fmt::format("the tokenizer {} is gone; the run's own is used", spec)};
  const std::string difference = first_difference(own, *open_tokenizer(spec, {}, ""));
  if (difference.empty()) return {};
  return {.forbidden = {}, .changed = fmt::format("the tokenizer {} changed: {}", spec, difference), .told = {}};
}

}  // namespace tutti::train
