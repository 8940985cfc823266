#include "tutti/io/chat_template/chat_encoding.h"

#include <algorithm>

namespace tutti {
ChatEncoder::ChatEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (tokenizer.has_token(token) && tokenizer.is_special(token) && !tokenizer.token_bytes(token).empty())
      specials_.push_back({.id = token, .content = std::string(tokenizer.token_bytes(token)), .special = true});
  }
  std::vector<const AddedToken*> tokens;
  for (const AddedToken& special : specials_) tokens.push_back(&special);
  finder_ = io::AddedTokenFinder(std::move(tokens));
}

// Cuts around the names of special tokens that a user has written, or a part of them. `specials` counts the others.
std::vector<ChatEncoder::Piece> ChatEncoder::pieces_of(const RenderedChat& chat, size_t& specials) const {
  std::string text;
  std::vector<bool> from_user, is_assistant;
  for (const ChatSpan& span : chat.spans) {
    text += span.text;
    from_user.resize(text.size(), span.is_from_user);
    is_assistant.resize(text.size(), span.is_assistant);
  }
  std::vector<Piece> pieces;
  const auto at = [](std::vector<bool>& flags, size_t i) { return flags.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto cut = [&](size_t begin, size_t end, bool parses_special) {
    if (begin == end) return;
    pieces.push_back(
        {text.substr(begin, end - begin), parses_special, {at(is_assistant, begin), at(is_assistant, end)}});
  };
  specials = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const io::AddedTokenFinder::Match match = finder_.find(text, i);
    if (match.token == nullptr) break;
    i = match.begin;
    const size_t nbytes = match.end - match.begin;
    const auto user = std::find(at(from_user, i), at(from_user, i + nbytes), true);
    if (user == at(from_user, i + nbytes)) {
      ++specials;
      i += nbytes;
      continue;
    }
    // Up to where the template goes on, which may begin a name of its own there.
    auto end = static_cast<size_t>(std::find(user, at(from_user, i + nbytes), false) - from_user.begin());
    cut(begin, i, true);
    cut(i, end, false);
    begin = i = end;
  }
  cut(begin, text.size(), true);
  return pieces;
}

std::vector<ChatEncoder::Piece> ChatEncoder::spans_as_pieces(const RenderedChat& chat) {
  std::vector<Piece> pieces;
  for (const ChatSpan& span : chat.spans)
    pieces.push_back({span.text, !span.is_from_user, std::vector<bool>(span.text.size(), span.is_assistant)});
  return pieces;
}

std::vector<int32_t> ChatEncoder::encode(const std::vector<Piece>& pieces) const {
  std::vector<int32_t> ids;
  for (const Piece& piece : pieces) tokenizer_.encode_into(piece.text, ids, {.parse_special = piece.parses_special});
  return ids;
}

// Normalization may make the name of a special token of other text: then template and user are encoded apart.
std::vector<ChatEncoder::Piece> ChatEncoder::checked_pieces(const RenderedChat& chat) const {
  size_t specials = 0;
  std::vector<Piece> pieces = pieces_of(chat, specials);
  const std::vector<int32_t> ids = encode(pieces);
  const auto found = std::count_if(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer_.is_special(id); });
  return static_cast<size_t>(found) == specials ? std::move(pieces) : spans_as_pieces(chat);
}

std::vector<int32_t> ChatEncoder::encode(const RenderedChat& chat) const { return encode(checked_pieces(chat)); }

EncodedChat ChatEncoder::encode_marked(const RenderedChat& chat) const {
  const std::vector<Piece> pieces = checked_pieces(chat);
  EncodedChat encoded;
  bool is_exact = true;  // the bytes of the tokens are those of the text, which tells their places
  for (const Piece& piece : pieces) {
    std::vector<int32_t> ids;
    tokenizer_.encode_into(piece.text, ids, {.parse_special = piece.parses_special});
    size_t begin = 0;
    for (const int32_t id : ids) {
      const std::string_view bytes = tokenizer_.token_bytes(id);
      is_exact = is_exact && std::string_view(piece.text).substr(std::min(begin, piece.text.size())).starts_with(bytes);
      const size_t end = std::min(begin + bytes.size(), piece.text.size());
      bool marked = false;
      for (size_t i = begin; i < end; ++i) marked = marked || piece.is_assistant[i];
      encoded.ids.push_back(id);
      encoded.is_assistant.push_back(marked);
      begin = end;
    }
    is_exact = is_exact && begin == piece.text.size();
  }
  if (is_exact) return encoded;
  // Otherwise the text is cut where the assistant begins and ends.
  encoded = {};
  for (const Piece& piece : pieces) {
    for (size_t begin = 0; begin < piece.text.size();) {
      size_t end = begin;
      while (end < piece.text.size() && piece.is_assistant[end] == piece.is_assistant[begin]) ++end;
      tokenizer_.encode_into(piece.text.substr(begin, end - begin), encoded.ids,
                             {.parse_special = piece.parses_special});
      encoded.is_assistant.resize(encoded.ids.size(), piece.is_assistant[begin]);
      begin = end;
    }
  }
  return encoded;
}

}  // namespace tutti
