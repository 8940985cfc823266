#include "tutti/io/tokenizer_difference.h"

#include <fmt/format.h>

#include "tutti/core/error.h"

namespace tutti {
namespace {

// "token 5 '</s>'"; ids without a token are legal, and so are tokenizers without a marker.
std::string token_text(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  if (!id) return "none";
  try {
    return fmt::format("token {} '{}'", *id, tokenizer.token_bytes(*id));
  } catch (const UsageError&) {
    return fmt::format("no token {}", *id);
  }
}

}  // namespace

std::string first_difference(const Tokenizer& before, const Tokenizer& now) {
  if (before.fingerprint() == now.fingerprint()) return "";
  if (before.vocab_size() != now.vocab_size()) {
    return fmt::format("it had {} tokens, and has {}", before.vocab_size(), now.vocab_size());
  }
  const auto changed = [&](const char* what, std::optional<int32_t> old_id, std::optional<int32_t> new_id) {
    return fmt::format("{} was {}, and is {}", what, token_text(before, old_id), token_text(now, new_id));
  };
  if (before.bos_id() != now.bos_id()) return changed("its BOS", before.bos_id(), now.bos_id());
  if (before.eos_id() != now.eos_id()) return changed("its EOS", before.eos_id(), now.eos_id());
  for (int32_t id = 0; id < before.vocab_size(); ++id) {
    if (token_text(before, id) != token_text(now, id)) return changed("one of its tokens", id, id);
    if (before.is_special(id) != now.is_special(id)) {
      return fmt::format("{} {} special, and {}", token_text(now, id), before.is_special(id) ? "was" : "was not",
                         now.is_special(id) ? "is" : "is not");
    }
  }
  return "its tokens are the same, and it splits or merges text in another way";
}

}  // namespace tutti
